-- Stores a new API key (list_keys.lua lists the fields). If the account has no record in this mode, it creates the record. It
-- also purges a few API keys that ended long ago.
-- KEYS[1] record of the API key · KEYS[2] the account's record in this mode
-- ARGV[1] keyId · ARGV[2] name · ARGV[3] scopes · ARGV[4] prefix · ARGV[5] expires, '' for never · ARGV[6] hash of the secret
-- ARGV[7] '1': only if the account has no record in this mode · ARGV[8] tier of a new account
-- ARGV[9] maximum number of active API keys, '0' for no limit · ARGV[10] createdBy
-- ARGV[11] id of the audit entry · ARGV[12] tier that the operation names, '' for none
-- Result: the API key as list_keys.lua returns it · 'taken' the id is in use · 'had' the account has a record, and ARGV[7] is '1'
--   {'quota', number of active API keys}: the account has the maximum number or more
if redis.call('EXISTS', KEYS[1]) == 1 then return 'taken' end
local tier = redis.call('HGET', KEYS[2], 'tier')
if tier and ARGV[7] == '1' then return 'had' end
adopt_keys(KEYS_ADOPTED_AT_ONCE)
purge_keys()
local active = active_keys()
if ARGV[9] ~= '0' and active >= tonumber(ARGV[9]) then return {'quota', active} end
if not tier then
  tier = ARGV[8]
  redis.call('HSET', KEYS[2], 'tier', tier)
end
local created, newest = now, redis.call('ZRANGE', key_index_key(), 0, 0, 'REV', 'WITHSCORES')[2]
if newest then created = math.max(created, newest + 1) end
add_key(ARGV[1], created, ARGV[5])
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'name', ARGV[2], 'scopes', ARGV[3], 'prefix', ARGV[4], 'expires', ARGV[5],
  'created', int(created), 'secret', ARGV[6], 'since', int(created), 'tier', tier, 'createdBy', ARGV[10],
  'version', 1)
audit(ARGV[11], KEY_CREATED, ARGV[10], ARGV[12], KEYS[1])
return redis.call('HGETALL', KEYS[1])
