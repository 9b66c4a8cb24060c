-- Sets an account's tier in one of its modes, there in all of its keys. The live mode's record is the truth: it counts the
-- changes, and the other mode's follows it.
-- KEYS[1] account, in this mode · KEYS[2] order of keys
-- ARGV[1] tier; '' leaves it, and is ARGV[4] for a new account · ARGV[2] prefix of keys' names
-- ARGV[3] '' in the live mode; elsewhere the version that the live mode has: an older one than is known changes nothing
-- ARGV[4] tier of a new account
-- → {tier, version, all keys as in lua/keys.lua}: whoever sets it again, because the reply was lost, needs them all
local a = redis.call('HMGET', KEYS[1], 'tier', 'version')
local tier, version = a[1], tonumber(a[2] or 0)
if ARGV[3] == '' then
  local wanted = ARGV[1] ~= '' and ARGV[1] or tier or ARGV[4]
  if wanted ~= tier then tier, version = wanted, version + 1 end
elseif tonumber(ARGV[3]) >= version then
  tier, version = ARGV[1], tonumber(ARGV[3])
end
redis.call('HSET', KEYS[1], 'tier', tier, 'version', version)
local keys = {}
for i, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local key = ARGV[2] .. id
  if redis.call('HGET', key, 'tier') ~= tier then
    redis.call('HSET', key, 'tier', tier)
    redis.call('HINCRBY', key, 'version', 1)
  end
  keys[i] = redis.call('HGETALL', key)
end
return {tier, version, keys}
