-- Sets the tier of an account. It creates the account's record in live mode if the account has none. A change of the tier of an
-- existing account gets an audit entry in live mode.
-- KEYS[1] the account's record in live mode
-- ARGV[1] tier; '' keeps the tier, or means ARGV[2] for a new account · ARGV[2] tier of a new account
-- ARGV[3] id of the audit entry · ARGV[4] actor
-- Result: the tier
local stored = redis.call('HGET', KEYS[1], 'tier')
local tier = ARGV[1] ~= '' and ARGV[1] or stored or ARGV[2]
if tier ~= stored then
  redis.call('HSET', KEYS[1], 'tier', tier)
  redis.call('HINCRBY', KEYS[1], 'version', 1)
  if stored then audit(ARGV[3], TIER_CHANGED, ARGV[4], tier) end
end
return tier
