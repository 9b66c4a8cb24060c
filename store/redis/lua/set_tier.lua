-- Sets an account's tier in one mode, and in all API keys of this mode. It creates the account's record if the account has none.
-- The record of the live mode decides, and its version counts the changes. The record of the test mode is a copy.
-- KEYS[1] the account's record in this mode · KEYS[2] the account's list of API keys
-- ARGV[1] tier; '' keeps the tier, or means ARGV[3] for a new account
-- ARGV[2] '' in live mode; in test mode, the version in live mode: if the stored version is newer, the stored tier is kept
-- ARGV[3] tier of a new account
-- Result: {tier, version, all API keys as list_keys.lua returns them}. The list has unchanged API keys too: a repeat after a lost
--   reply must write their pointers.
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
