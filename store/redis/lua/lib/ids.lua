-- This library makes ids in the format of conversation.NewID: a prefix, CLOCK_LENGTH digits for the time in milliseconds, and
-- random characters. The caller passes the random characters, because Redis seeds Lua's random numbers with a constant.
-- Defines: clock_digits, new_id.

-- Returns the digits that encode the time at, in milliseconds. They sort like the times.
local function clock_digits(at)
  local text = ''
  for _ = 1, CLOCK_LENGTH do
    local digit = at % #DIGITS + 1
    text, at = string.sub(DIGITS, digit, digit) .. text, math.floor(at / #DIGITS)
  end
  return text
end

-- Returns an id for the time at, in milliseconds. If last, an earlier id, is not nil, the new id sorts after it. Then the id may
-- encode a later time than at. The second result is the encoded time.
local function new_id(prefix, at, last, random)
  if last then
    local ticks = 0
    for i = #prefix + 1, #prefix + CLOCK_LENGTH do
      ticks = ticks * #DIGITS + string.find(DIGITS, string.sub(last, i, i), 1, true) - 1
    end
    at = math.max(at, ticks + 1)
  end
  return prefix .. clock_digits(at) .. random, at
end
