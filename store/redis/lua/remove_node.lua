-- Removes a dead node from the nodes, unless it has beaten again.
-- KEYS[1] nodes
-- ARGV[1] the node · ARGV[2] after how many milliseconds without a heartbeat it is dead
-- Result: 1 if it was removed, else 0
local beat = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not beat or tonumber(beat) >= now - ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
