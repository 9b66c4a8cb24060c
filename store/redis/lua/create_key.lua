-- Stores a new API key (list_keys.lua lists the fields). If the account has no record in this mode, it creates the record.
-- KEYS[1] record of the API key · KEYS[2] the account's list of API keys · KEYS[3] the account's record in this mode
-- ARGV[1] keyId · ARGV[2] name · ARGV[3] scopes · ARGV[4] prefix · ARGV[5] expires, '' for never · ARGV[6] hash of the secret
-- ARGV[7] '1': only if the account has no record in this mode · ARGV[8] tier of a new account
-- Result: the API key as list_keys.lua returns it · 'taken' the id is in use · 'had' the account has a record, and ARGV[7] is '1'
if redis.call('EXISTS', KEYS[1]) == 1 then return 'taken' end
local tier = redis.call('HGET', KEYS[3], 'tier')
if tier and ARGV[7] == '1' then return 'had' end
if not tier then
  tier = ARGV[8]
  redis.call('HSET', KEYS[3], 'tier', tier)
end
local created, newest = now, redis.call('LINDEX', KEYS[2], 0)
if newest then created = math.max(created, redis.call('HGET', key_key(newest), 'created') + 1) end
redis.call('LPUSH', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'name', ARGV[2], 'scopes', ARGV[3], 'prefix', ARGV[4], 'expires', ARGV[5],
  'created', int(created), 'secret', ARGV[6], 'since', int(created), 'tier', tier, 'version', 1)
return redis.call('HGETALL', KEYS[1])
