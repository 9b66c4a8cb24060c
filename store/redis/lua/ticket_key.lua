-- Returns the key that seals the tickets of all nodes. The first call stores it.
-- KEYS[1] ticket-key
-- ARGV[1] a new key, which is stored if there is none
-- Result: the key that seals tickets
local stored = redis.call('GET', KEYS[1])
if stored then return stored end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
