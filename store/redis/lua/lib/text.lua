-- This library converts numbers to text.
-- Defines: int.

-- Returns a whole number as decimal text. For a time in milliseconds, tostring would return a text like 1.6e+12.
local function int(n) return string.format('%d', n) end
