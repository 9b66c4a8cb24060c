-- Says who presents a secret, or that nobody does any more. What a later version of the key said stands: pointers are
-- written after the key, so two writers can come in either order.
-- KEYS[1] pointer
-- ARGV[1] version of the key · ARGV[2] what is said of it; '' for nobody · ARGV[3] when it expires, in milliseconds, '' for never
-- → 1 if it was written, 0
local was = redis.call('GET', KEYS[1])
if was and tonumber(string.match(was, '^%d+')) > tonumber(ARGV[1]) then return 0 end
local value = ARGV[1] .. ' ' .. ARGV[2]
if ARGV[3] == '' then redis.call('SET', KEYS[1], value) else redis.call('SET', KEYS[1], value, 'PXAT', ARGV[3]) end
return 1
