-- Says that a node lives.
-- KEYS[1] nodes
-- ARGV[1] the node · ARGV[2] a node whose heartbeat is older than that is dead, in milliseconds
-- → {1 if the node was among the nodes, 0, the clock in milliseconds, all nodes, the dead ones}
local was = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], string.format('%d', now), ARGV[1])
return {was and 1 or 0, now, redis.call('ZRANGE', KEYS[1], 0, -1),
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', now - ARGV[2]))}
