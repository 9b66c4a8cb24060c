-- Claims the pointer of a secret for an API key that is being created or rotated, so that no two API keys get the same secret.
-- KEYS[1] the pointer
-- ARGV[1] duration of the claim in milliseconds
-- Result: 1 if the secret is claimed now · 0 if it was in use or claimed before
return redis.call('SET', KEYS[1], '0 ', 'NX', 'PX', ARGV[1]) and 1 or 0
