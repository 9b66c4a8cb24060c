-- Returns all keys of an account in a mode, newest first.
-- KEYS[1] order of keys
-- ARGV[1] prefix of keys' names
-- → of each key, its fields and their values, flat: id · name · scopes (JSON) · prefix · created · expires ('' for never) ·
--   used (not there if it never was) · revoked ('1', or not there) · tier (of the account) · version (counts changes) ·
--   secret, since (of the newest secret) · previous, previousSince, until (of the one before). Times are in milliseconds,
--   secrets are hashes; a revoked key has none.
local keys = {}
for i, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do keys[i] = redis.call('HGETALL', ARGV[1] .. id) end
return keys
