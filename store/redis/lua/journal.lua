-- Writes text of a live reply to the journal, if the journal exists. On a missing key, SETRANGE would create a key that never
-- expires. If the offset is after the journal's end, because a fail-over lost text, it writes nothing: SETRANGE would fill the
-- gap with NUL bytes.
-- KEYS[1] journal
-- ARGV[1] offset in bytes · ARGV[2] text
-- Result: milliseconds until the journal expires · 0 if nothing was written
local left = redis.call('PTTL', KEYS[1])
if left <= 0 or redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[1]) then return 0 end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])
return left
