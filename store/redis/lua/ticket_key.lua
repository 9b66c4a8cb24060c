-- Returns what seals the tickets of all nodes. It is made once.
-- KEYS[1] the key of tickets
-- ARGV[1] a new one
-- → the key of tickets
local kept = redis.call('GET', KEYS[1])
if kept then return kept end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
