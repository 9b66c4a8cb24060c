-- Removes the pointer of a secret, but only if it names a certain API key. A request with a wrong account must not remove the
-- pointer of the right one.
-- KEYS[1] the pointer
-- ARGV[1] account · ARGV[2] mode · ARGV[3] keyId; '' for the pointer of a secret that is claimed or removed
-- Result: 1 if the pointer was removed, else 0
local stored = redis.call('GET', KEYS[1])
if not stored then return 0 end
local presenter = string.match(stored, '^%d+ (.*)$')
if presenter == '' then
  if ARGV[3] ~= '' then return 0 end
else
  local key = cjson.decode(presenter).key
  if key.account ~= ARGV[1] or key.mode ~= ARGV[2] or key.keyId ~= ARGV[3] then return 0 end
end
return redis.call('DEL', KEYS[1])
