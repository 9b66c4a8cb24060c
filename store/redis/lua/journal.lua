-- Writes text of a live reply, if its journal is there still: a key that SETRANGE made would never expire. Nor is text written
-- after a gap: where a fail-over has lost what was before, it would be padded.
-- KEYS[1] journal
-- ARGV[1] offset in bytes · ARGV[2] text
-- → in how many milliseconds the journal expires; 0: nothing was written
local left = redis.call('PTTL', KEYS[1])
if left <= 0 or redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[1]) then return 0 end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])
return left
