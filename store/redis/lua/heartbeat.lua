-- Notes a node's heartbeat, and returns the other nodes.
-- KEYS[1] nodes
-- ARGV[1] the node · ARGV[2] after how many milliseconds without a heartbeat a node is dead
-- Result: {1 if the node was among the nodes, else 0, the clock in milliseconds, all nodes, the dead ones}
local was = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], int(now), ARGV[1])
return {was and 1 or 0, now, redis.call('ZRANGE', KEYS[1], 0, -1),
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. int(now - ARGV[2]))}
