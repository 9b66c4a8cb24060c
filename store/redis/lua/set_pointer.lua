-- Stores the pointer of a secret. The pointer names the secret's API key, or marks the secret as removed. If the stored pointer
-- has a later version, the script keeps it. A pointer is written after the API key, so two writers can arrive in any order.
-- KEYS[1] the pointer
-- ARGV[1] version of the API key · ARGV[2] presenter (set_pointer.go) as JSON, '' if the secret was removed
-- ARGV[3] expiry in milliseconds, '' for never
-- Result: 1 if it was stored, else 0
local stored = redis.call('GET', KEYS[1])
if stored and tonumber(string.match(stored, '^%d+')) > tonumber(ARGV[1]) then return 0 end
local value = ARGV[1] .. ' ' .. ARGV[2]
if ARGV[3] == '' then redis.call('SET', KEYS[1], value) else redis.call('SET', KEYS[1], value, 'PXAT', ARGV[3]) end
return 1
