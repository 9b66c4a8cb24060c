-- Forgets a node that is dead, unless it lives again.
-- KEYS[1] nodes
-- ARGV[1] the node · ARGV[2] it is dead if its heartbeat is older than that, in milliseconds
-- → 1 if it is forgotten, 0
local heard = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not heard or tonumber(heard) >= now - ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
