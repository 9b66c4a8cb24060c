-- Ids, as conversation.NewID makes them: a prefix, CLOCK_LENGTH digits that count milliseconds, and random characters, which the
-- caller passes because Lua in Redis has no randomness.
-- Defines: new_id.

-- Returns an id of a time in milliseconds that sorts after last, which may be nil.
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
