-- Stores vectors of exchanges, each under the reply that ends the exchange. It skips replies that are not indexed, and stores
-- nothing if the session is gone or its policy is not semantic.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2…] a reply, its vector, …
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
