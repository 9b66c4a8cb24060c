-- This library writes the audit log of an account in one mode: a sorted set of JSON objects by time (list_audit.lua).
-- Defines: audit.

-- Adds an entry to the audit log, and removes up to AUDIT_PURGED_AT_ONCE entries that are too old or exceed MAX_AUDIT_ENTRIES.
-- tier is the new tier of the account, '' if the operation names none. key is the name of an API key's record, nil for an
-- operation without API key.
local function audit(id, action, actor, tier, key)
  local k = key and redis.call('HMGET', key, 'id', 'name', 'scopes', 'prefix', 'expires') or {}
  local entry = {id = id, action = action, actor = actor, tier = tier,
    keyId = k[1], name = k[2], scopes = k[3], prefix = k[4], expires = k[5]}
  local at, newest = now, redis.call('ZRANGE', audit_key(), 0, 0, 'REV', 'WITHSCORES')[2]
  if newest then at = math.max(at, newest + 1) end
  redis.call('ZADD', audit_key(), int(at), cjson.encode(entry))
  redis.call('PEXPIREAT', audit_key(), int(at + AUDIT_LIFETIME))
  local old = redis.call('ZCOUNT', audit_key(), '-inf', int(now - AUDIT_LIFETIME))
  local excess = math.max(old, redis.call('ZCARD', audit_key()) - MAX_AUDIT_ENTRIES)
  if excess > 0 then redis.call('ZREMRANGEBYRANK', audit_key(), 0, math.min(excess, AUDIT_PURGED_AT_ONCE) - 1) end
end
