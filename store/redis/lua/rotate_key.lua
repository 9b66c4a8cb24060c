-- Gives a key a new secret; the newest before it works for a while yet, one before that no longer.
-- KEYS[1] the key
-- ARGV[1] hash of the new secret · ARGV[2] prefix · ARGV[3] for how long the old one works, in milliseconds
-- ARGV[4] '1': only tell whether that has been done
-- → {the key as in lua/keys.lua, hash of the secret that is gone, '' if none or not known} · 'none' there is none that works
if ARGV[4] == '1' then
  if redis.call('HGET', KEYS[1], 'secret') ~= ARGV[1] then return 'none' end
  return {redis.call('HGETALL', KEYS[1]), ''}
end
local k = redis.call('HMGET', KEYS[1], 'secret', 'since', 'previous', 'expires')
if not k[1] or k[4] ~= '' and now >= tonumber(k[4]) then return 'none' end
redis.call('HSET', KEYS[1], 'secret', ARGV[1], 'since', string.format('%d', now), 'prefix', ARGV[2],
  'previous', k[1], 'previousSince', k[2], 'until', string.format('%d', now + ARGV[3]))
redis.call('HINCRBY', KEYS[1], 'version', 1)
return {redis.call('HGETALL', KEYS[1]), k[3] or ''}
