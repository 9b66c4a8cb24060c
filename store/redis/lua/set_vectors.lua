-- Stores vectors of exchanges, each under the id of its reply. It skips replies that are not in the index. If the session is
-- gone, or its policy is not semantic, it stores nothing.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2…] id of a reply, vector, id of a reply, vector, …
-- Result: number of stored vectors
local s, stored = session_at(ARGV[1]), 0
if not s or s.policy ~= POLICY_SEMANTIC then return 0 end
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  if #redis.call('ZRANGE', index_key(s.id), '[' .. id .. '\0', '(' .. id .. '\1', 'BYLEX') > 0 then
    redis.call('HSET', vectors_key(s.id), id, ARGV[i + 1])
    stored = stored + 1
  end
end
if stored > 0 then redis.call('PEXPIREAT', vectors_key(s.id), int(s.expires)) end
return stored
