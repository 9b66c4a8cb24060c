-- Gives a key a new secret. The newest secret so far becomes the previous one, and the previous one is removed.
-- KEYS[1] the key
-- ARGV[1] hash of the new secret · ARGV[2] prefix · ARGV[3] milliseconds for which the previous secret still works
-- ARGV[4] '1': change nothing, only return the key if that secret is its newest
-- Result: {the key as list_keys.lua returns it, hash of the removed secret, '' for none and if ARGV[4] is '1'}
--   'none' no such key, it is revoked or expired; if ARGV[4] is '1': its newest secret is another
if ARGV[4] == '1' then
  if redis.call('HGET', KEYS[1], 'secret') ~= ARGV[1] then return 'none' end
  return {redis.call('HGETALL', KEYS[1]), ''}
end
local k = redis.call('HMGET', KEYS[1], 'secret', 'since', 'previous', 'expires')
if not k[1] or k[4] ~= '' and now >= tonumber(k[4]) then return 'none' end
redis.call('HSET', KEYS[1], 'secret', ARGV[1], 'since', int(now), 'prefix', ARGV[2],
  'previous', k[1], 'previousSince', k[2], 'until', int(now + ARGV[3]))
redis.call('HINCRBY', KEYS[1], 'version', 1)
return {redis.call('HGETALL', KEYS[1]), k[3] or ''}
