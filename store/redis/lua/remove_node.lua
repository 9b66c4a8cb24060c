-- Removes a dead node from the list of nodes, unless the node has sent a heartbeat again.
-- KEYS[1] list of nodes
-- ARGV[1] the node · ARGV[2] a node is dead after this many milliseconds without a heartbeat
-- Result: 1 if it was removed, else 0
local beat = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not beat or tonumber(beat) >= now - ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
