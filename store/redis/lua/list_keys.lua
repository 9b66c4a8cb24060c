-- Returns all keys of an account in a mode, newest first, with the revoked ones.
-- KEYS[1] the account's list of keys
-- Result: for each key a flat list of its fields and their values. Times are in milliseconds, secrets are hashes.
--   id · name · scopes (JSON) · prefix · created · expires ('' for never) · used (absent if never) · revoked ('1' or absent) ·
--   tier (of the account) · version (counts all changes but those of used) · secret, since (the newest secret) ·
--   previous, previousSince, until (the previous secret). A revoked key has no secrets.
local keys = {}
for i, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do keys[i] = redis.call('HGETALL', key_key(id)) end
return keys
