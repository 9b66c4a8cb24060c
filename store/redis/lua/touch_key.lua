-- Stores the time at which an API key was last used. If the same or a later time is stored, or the API key is
-- unknown, it does nothing.
-- KEYS[1] record of the API key
-- ARGV[1] time in milliseconds
-- Result: 1 if it was stored, else 0
local k = redis.call('HMGET', KEYS[1], 'id', 'used')
if not k[1] or k[2] and tonumber(k[2]) >= tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'used', ARGV[1])
return 1
