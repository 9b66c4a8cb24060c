-- Stores a node's heartbeat, and returns the list of nodes. The list contains the calling node and the dead nodes.
-- KEYS[1] list of nodes
-- ARGV[1] the node · ARGV[2] a node is dead after this many milliseconds without a heartbeat
-- Result: {1 if the node was in the list before, else 0, server time in milliseconds, all nodes, the dead nodes}
local was = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], int(now), ARGV[1])
return {was and 1 or 0, now, redis.call('ZRANGE', KEYS[1], 0, -1),
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. int(now - ARGV[2]))}
