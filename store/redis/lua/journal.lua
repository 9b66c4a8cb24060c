-- Writes text of a live reply if its journal exists: SETRANGE would make a key that never expires. It writes nothing after a gap either,
-- which is there if a fail-over lost text: SETRANGE would fill it with NUL bytes.
-- KEYS[1] journal
-- ARGV[1] offset in bytes · ARGV[2] text
-- Result: in how many milliseconds the journal expires; 0 if nothing was written
local left = redis.call('PTTL', KEYS[1])
if left <= 0 or redis.call('STRLEN', KEYS[1]) < tonumber(ARGV[1]) then return 0 end
redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])
return left
