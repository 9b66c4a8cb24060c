-- Returns a page of an account's API keys in a mode, newest first, with the expired and revoked keys. It also purges a few API
-- keys that ended long ago.
-- KEYS[1] index of the account's API keys by creation
-- ARGV[1] only API keys created before this time, '' for all · ARGV[2] maximum number of API keys
-- Result: {1 if more API keys follow, else 0, API key, API key, …}. An API key is a list: field, value, field, value, … Times are
--   in milliseconds. Secrets are hashes. The fields are
--   id · name · scopes (JSON) · prefix · created · createdBy (absent in old records) · expires ('' for never) ·
--   used (absent if never) · revoked ('1' or absent) ·
--   version (counts all changes except those of used) · secret, since (the newest secret) ·
--   previous, previousSince, until (the previous secret) · tier (see schema.go). A revoked API key has no secrets.
local limit = tonumber(ARGV[2])
adopt_keys(limit + 1)
purge_keys()
local ids = redis.call('ZRANGE', KEYS[1], ARGV[1] == '' and '+inf' or '(' .. ARGV[1], '-inf', 'BYSCORE', 'REV',
  'LIMIT', 0, int(limit + 1))
local page = {(#ids > limit or redis.call('LLEN', key_list_key()) > 0) and 1 or 0}
for i = 1, math.min(limit, #ids) do page[i + 1] = redis.call('HGETALL', key_key(ids[i])) end
return page
