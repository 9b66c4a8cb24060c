-- Changes the settings of a session, if nobody has changed them since the caller read the session. A session whose policy is fifo
-- loses its index and its vectors.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] number of changes of the settings when the caller read the session
-- ARGV[3] metadata, '' for none · ARGV[4] size of the window in tokens · ARGV[5] '1' to summarise, else ''
-- ARGV[6] retention policy · ARGV[7] '1' if the session may have messages with this policy, else ''
-- ARGV[8] size of the instructions in a prompt · ARGV[9] instructions, '' for none
-- ARGV[10] record of the model's configuration, '' for none · ARGV[11] limit of a reply in tokens, '0' for the default
-- ARGV[12] quota of stored bytes; '0' for no limit
-- Result: {'updated', settings_view} · {'gone'} no such session · {'quota', name, used part}: a quota refuses the settings
--   {'changed', settings_view}: the settings were changed before, or the session has messages and may have none
local s = session_at(ARGV[1])
if not s then return {'gone'} end
local view = settings_view(s)
if int(view[#view]) ~= ARGV[2] or ARGV[7] == '' and s.count > 0 then return {'changed', view} end
local stored, grown = stored_at(s.expires), #ARGV[3] + #ARGV[9] - settings_bytes(s)
if grown > 0 and not stored_fits(stored, grown, ARGV[12]) then return {'quota', QUOTA_STORED_BYTES, stored.total} end
stored_add(stored, s, grown)
s.meta = ARGV[3] ~= '' and ARGV[3] or nil
s.window, s.compress, s.policy = tonumber(ARGV[4]), ARGV[5], ARGV[6]
session_save(s, 'meta', 'window', 'compress', 'policy', 'bytes')
settings_save(s, ARGV[8], ARGV[9], ARGV[10], ARGV[11])
if s.policy == POLICY_FIFO then redis.call('UNLINK', index_key(s.id), vectors_key(s.id)) end
redis.call('HINCRBY', session_key(s.id), 'rev', 1)
return {'updated', settings_view(s)}
