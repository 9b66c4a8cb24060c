-- Stores who presents a secret, or that nobody does any more. A value of a later version of the key stays: pointers are written after
-- their key, so two writers can arrive in either order.
-- KEYS[1] the pointer
-- ARGV[1] version of the key · ARGV[2] who presents the secret, '' for nobody · ARGV[3] expires, in milliseconds, '' for never
-- Result: 1 if it was stored, else 0
local stored = redis.call('GET', KEYS[1])
if stored and tonumber(string.match(stored, '^%d+')) > tonumber(ARGV[1]) then return 0 end
local value = ARGV[1] .. ' ' .. ARGV[2]
if ARGV[3] == '' then redis.call('SET', KEYS[1], value) else redis.call('SET', KEYS[1], value, 'PXAT', ARGV[3]) end
return 1
