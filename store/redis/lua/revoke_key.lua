-- Revokes an API key: keeps the record and removes the secrets.
-- KEYS[1] record of the API key
-- ARGV[1] id of the audit entry · ARGV[2] actor
-- Result: the record before the change, but with the new version, as list_keys.lua returns it
--   'none' no such API key, or it was revoked before
local k = redis.call('HMGET', KEYS[1], 'id', 'revoked')
if not k[1] or k[2] then return 'none' end
redis.call('HINCRBY', KEYS[1], 'version', 1)
local was = redis.call('HGETALL', KEYS[1])
redis.call('HSET', KEYS[1], 'revoked', '1')
end_key(k[1])
redis.call('HDEL', KEYS[1], 'secret', 'since', 'previous', 'previousSince', 'until')
audit(ARGV[1], KEY_REVOKED, ARGV[2], '', KEYS[1])
return was
