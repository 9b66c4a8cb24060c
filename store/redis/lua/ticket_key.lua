-- Returns the key that seals the tickets of all nodes. The first call stores it.
-- KEYS[1] where it is stored
-- ARGV[1] a new one
-- Result: the key that seals tickets
local stored = redis.call('GET', KEYS[1])
if stored then return stored end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
