-- Writes, to see that the server can.
-- KEYS[1] ready
-- → 1
redis.call('SET', KEYS[1], '1', 'PX', 1)
return 1
