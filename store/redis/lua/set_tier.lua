-- Sets an account's tier in one of its modes, and in all keys of that mode. It creates the account if it does not exist. The live
-- mode's record decides: it counts the changes, and the test mode's record is a copy.
-- KEYS[1] the account's record in this mode · KEYS[2] the account's list of keys
-- ARGV[1] tier; '' keeps the tier, or means ARGV[3] for a new account
-- ARGV[2] '' in live mode; in test mode the version in live mode, and an older version than the stored one keeps the stored tier
-- ARGV[3] tier of a new account
-- Result: {tier, version, all keys as list_keys.lua returns them}. A repeat after a lost reply needs the unchanged keys too.
local a = redis.call('HMGET', KEYS[1], 'tier', 'version')
local tier, version = a[1], tonumber(a[2] or 0)
if ARGV[2] == '' then
  local wanted = ARGV[1] ~= '' and ARGV[1] or tier or ARGV[3]
  if wanted ~= tier then tier, version = wanted, version + 1 end
elseif tonumber(ARGV[2]) >= version then
  tier, version = ARGV[1], tonumber(ARGV[2])
end
redis.call('HSET', KEYS[1], 'tier', tier, 'version', version)
local keys = {}
for i, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if redis.call('HGET', key_key(id), 'tier') ~= tier then
    redis.call('HSET', key_key(id), 'tier', tier)
    redis.call('HINCRBY', key_key(id), 'version', 1)
  end
  keys[i] = redis.call('HGETALL', key_key(id))
end
return {tier, version, keys}
