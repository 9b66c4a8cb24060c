-- Stores which key a secret belongs to, or that it belongs to none any more. It keeps a pointer of a later version of the key: a
-- pointer is written after its key, so two writers can arrive in either order.
-- KEYS[1] the pointer
-- ARGV[1] version of the key · ARGV[2] presenter as JSON, '' for none · ARGV[3] expiry in milliseconds, '' for never
-- Result: 1 if it was stored, else 0
local stored = redis.call('GET', KEYS[1])
if stored and tonumber(string.match(stored, '^%d+')) > tonumber(ARGV[1]) then return 0 end
local value = ARGV[1] .. ' ' .. ARGV[2]
if ARGV[3] == '' then redis.call('SET', KEYS[1], value) else redis.call('SET', KEYS[1], value, 'PXAT', ARGV[3]) end
return 1
