-- Returns the key that seals the tickets of all nodes. The first call stores the key.
-- KEYS[1] ticket-key
-- ARGV[1] a new key, which is stored if no key is stored
-- Result: the stored key
local stored = redis.call('GET', KEYS[1])
if stored then return stored end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
