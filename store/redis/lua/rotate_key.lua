-- Gives an API key a new secret. The secret that was the newest becomes the previous secret. An older previous secret is removed.
-- KEYS[1] record of the API key
-- ARGV[1] hash of the new secret · ARGV[2] prefix · ARGV[3] milliseconds for which the previous secret still works
-- ARGV[4] '1': change nothing, and return the API key only if its newest secret has the hash ARGV[1]
-- ARGV[5] id of the audit entry · ARGV[6] actor
-- Result: {the API key as list_keys.lua returns it, hash of the removed secret or ''}
--   'none' no such API key, or it is revoked or expired; if ARGV[4] is '1', its newest secret has another hash
if ARGV[4] == '1' then
  if redis.call('HGET', KEYS[1], 'secret') ~= ARGV[1] then return 'none' end
  return {redis.call('HGETALL', KEYS[1]), ''}
end
local k = redis.call('HMGET', KEYS[1], 'secret', 'since', 'previous', 'expires')
if not k[1] or k[4] ~= '' and now >= tonumber(k[4]) then return 'none' end
redis.call('HSET', KEYS[1], 'secret', ARGV[1], 'since', int(now), 'prefix', ARGV[2],
  'previous', k[1], 'previousSince', k[2], 'until', int(now + ARGV[3]))
redis.call('HINCRBY', KEYS[1], 'version', 1)
audit(ARGV[5], KEY_ROTATED, ARGV[6], '', KEYS[1])
return {redis.call('HGETALL', KEYS[1]), k[3] or ''}
