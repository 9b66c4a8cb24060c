-- Keeps vectors of exchanges with the replies that end them. What is not in the index is passed over.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2…] a reply, its vector, …
-- → how many were kept
local s, kept = session_at(ARGV[1]), 0
if not s or s.policy ~= 'semantic' then return 0 end
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  if #redis.call('ZRANGE', index_key(s.id), '[' .. id .. '\0', '(' .. id .. '\1', 'BYLEX') > 0 then
    redis.call('HSET', vectors_key(s.id), id, ARGV[i + 1])
    kept = kept + 1
  end
end
if kept > 0 then redis.call('PEXPIREAT', vectors_key(s.id), int(s.expires)) end
return kept
