-- Claims a secret that is to be a key's, for as long as that takes to be made.
-- KEYS[1] its pointer
-- ARGV[1] for how long, in milliseconds
-- → 1 · 0 it is in use
return redis.call('SET', KEYS[1], '0 ', 'NX', 'PX', ARGV[1]) and 1 or 0
