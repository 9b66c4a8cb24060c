-- Ids in the format of conversation.NewID: a prefix, CLOCK_LENGTH digits that count milliseconds, and random characters. The
-- caller passes the random characters, because Redis seeds Lua's random numbers with a constant.
-- Defines: new_id.

-- Returns an id for a time in milliseconds. It sorts after the id last, if that is not nil.
local function new_id(prefix, at, last, random)
  if last then
    local ticks = 0
    for i = #prefix + 1, #prefix + CLOCK_LENGTH do
      ticks = ticks * #DIGITS + string.find(DIGITS, string.sub(last, i, i), 1, true) - 1
    end
    at = math.max(at, ticks + 1)
  end
  local text = ''
  for _ = 1, CLOCK_LENGTH do
    local digit = at % #DIGITS + 1
    text, at = string.sub(DIGITS, digit, digit) .. text, math.floor(at / #DIGITS)
  end
  return prefix .. text .. random
end
