-- Claims the pointer of a secret for a key that is being created or rotated, so that no two keys get the same secret.
-- KEYS[1] the pointer
-- ARGV[1] duration of the claim in milliseconds
-- Result: 1 · 0 if the secret is in use or claimed
return redis.call('SET', KEYS[1], '0 ', 'NX', 'PX', ARGV[1]) and 1 or 0
