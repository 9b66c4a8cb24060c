-- Changes the settings of a session, if nobody has changed them since the caller read the session. If the policy becomes fifo, only
-- system messages stay in the index.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] number of changes of the settings when the caller read the session
-- ARGV[3] metadata, '' for none · ARGV[4] size of the window in tokens · ARGV[5] '1' to summarise, else ''
-- ARGV[6] retention policy · ARGV[7] '1' if the session may have messages with this policy, else ''
-- ARGV[8] size of the instructions in a prompt · ARGV[9] instructions, '' for none
-- ARGV[10] record of the model's configuration, '' for none · ARGV[11] limit of a reply in tokens, '0' for the default
-- ARGV[12] quota of stored bytes; '0' for no limit
-- Result: {'updated', settings_view} · {'gone'} no such session · {'quota', name, used part}: a quota refuses the settings
--   {'changed', settings_view}: the settings were changed before, or the session has messages and may have none

-- Removes all entries of the index but those of system messages, and the vectors. No window chooses among more than INDEX_LIMIT
-- entries, so older ones are removed too.
local function index_only_system(s)
  local key, kept = index_key(s.id), {}
  for _, member in ipairs(redis.call('ZRANGE', key, '+', '-', 'BYLEX', 'REV', 'LIMIT', 0, INDEX_LIMIT)) do
    if is_system(string.sub(member, ID_LENGTH + 2)) then
      kept[#kept + 1] = 0
      kept[#kept + 1] = member
    end
  end
  redis.call('UNLINK', key, vectors_key(s.id))
  if #kept == 0 then return end
  redis.call('ZADD', key, unpack(kept))
  redis.call('PEXPIREAT', key, int(s.expires))
end

local s = session_at(ARGV[1])
if not s then return {'gone'} end
local changes = redis.call('HGET', session_key(s.id), 'rev') or '0'
if changes ~= ARGV[2] or ARGV[7] == '' and s.count > 0 then return {'changed', settings_view(s)} end
local stored, grown = stored_at(s.expires), #ARGV[3] + #ARGV[9] - settings_bytes(s)
if grown > 0 and not stored_fits(stored, grown, ARGV[12]) then return {'quota', QUOTA_STORED_BYTES, stored.total} end
stored_add(stored, s, grown)
local fifo_before = s.policy == POLICY_FIFO
s.meta = ARGV[3] ~= '' and ARGV[3] or nil
s.window, s.compress, s.policy = tonumber(ARGV[4]), ARGV[5], ARGV[6]
session_save(s, 'meta', 'window', 'compress', 'policy', 'bytes')
settings_save(s, ARGV[8], ARGV[9], ARGV[10], ARGV[11])
if s.policy == POLICY_FIFO and not fifo_before then index_only_system(s) end
redis.call('HINCRBY', session_key(s.id), 'rev', 1)
return {'updated', settings_view(s)}
