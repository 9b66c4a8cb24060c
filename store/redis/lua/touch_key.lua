-- Notes when a key was last used; what is later stands.
-- KEYS[1] the key
-- ARGV[1] when, in milliseconds
-- → 1 if it was noted, 0
local k = redis.call('HMGET', KEYS[1], 'id', 'used')
if not k[1] or k[2] and tonumber(k[2]) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'used', ARGV[1])
return 1
