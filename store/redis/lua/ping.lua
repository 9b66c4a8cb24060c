-- Writes a key, to check that the server accepts writes.
-- KEYS[1] the key; it expires after 1 ms
-- Result: 1
redis.call('SET', KEYS[1], '1', 'PX', 1)
return 1
