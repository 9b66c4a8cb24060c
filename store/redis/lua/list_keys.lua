-- Returns all API keys of an account in a mode, newest first, with the revoked keys.
-- KEYS[1] the account's list of API keys
-- Result: a list for each API key: field, value, field, value, … Times are in milliseconds. Secrets are hashes. The fields are
--   id · name · scopes (JSON) · prefix · created · expires ('' for never) · used (absent if never) · revoked ('1' or absent) ·
--   tier (of the account) · version (counts all changes except those of used) · secret, since (the newest secret) ·
--   previous, previousSince, until (the previous secret). A revoked API key has no secrets.
local keys = {}
for i, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do keys[i] = redis.call('HGETALL', key_key(id)) end
return keys
