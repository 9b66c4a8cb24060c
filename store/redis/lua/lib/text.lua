-- Numbers as text.
-- Defines: int.

-- Returns a whole number as decimal text. tostring would return 1.6e+12 for a time in milliseconds.
local function int(n) return string.format('%d', n) end
