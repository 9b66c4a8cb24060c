-- Creates a session. If the same request has created a session before, it returns that session. It also prunes the indices of
-- sessions.
-- KEYS[1] index of sessions
-- ARGV[1] random characters for an id · ARGV[2] user · ARGV[3] metadata, '' for none · ARGV[4] size of the window in tokens
-- ARGV[5] '1' to summarise, else '' · ARGV[6] retention policy · ARGV[7] lifetime in milliseconds
-- ARGV[8] idempotency key, '' for none · ARGV[9] digest of the request
-- ARGV[10] quota of active sessions · ARGV[11] quota of stored bytes; '0' for no limit
-- ARGV[12] size of the instructions in a prompt · ARGV[13] instructions, '' for none
-- ARGV[14] record of the model's configuration, '' for none · ARGV[15] limit of a reply in tokens, '0' for the default
-- ARGV[16…] counts of usage
-- Result: {'created' or 'replayed', id, settings_view} · {'conflict'} another request used the idempotency key
--   {'quota', name, used part}: a quota refuses the session
local known = recall(ARGV[8], ARGV[9])
if known == 'conflict' then return {'conflict'} end
if known then return {'replayed', known.session.id, settings_view(known.session)} end
prune()
local active = redis.call('ZCOUNT', expiry_key(), '(' .. int(now), '+inf') -- some expired sessions may not be pruned yet
if ARGV[10] ~= '0' and active >= tonumber(ARGV[10]) then return {'quota', QUOTA_ACTIVE_SESSIONS, active} end
local stored = stored_at(now + ARGV[7])
local bytes = #ARGV[3] + #ARGV[13]
if not stored_fits(stored, bytes, ARGV[11]) then return {'quota', QUOTA_STORED_BYTES, stored.total} end
local newest = redis.call('ZREVRANGE', sessions_key(), 0, 0)[1]
local s = {
  id = new_id(SESSION_PREFIX, now, newest, ARGV[1]), user = ARGV[2], created = now, expires = now + ARGV[7], last = now, count = 0,
  prompt = 0, completion = 0, total = 0, window = tonumber(ARGV[4]), compress = ARGV[5], policy = ARGV[6], htokens = 0, fence = 0,
}
if ARGV[3] ~= '' then s.meta = ARGV[3] end
stored_begin(stored, s, bytes)
session_save(s, 'user', 'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'meta', 'window', 'compress',
  'policy', 'htokens', 'fence', 'bytes')
if ARGV[13] ~= '' or ARGV[14] ~= '' then settings_save(s, ARGV[12], ARGV[13], ARGV[14], ARGV[15]) end
redis.call('PEXPIREAT', session_key(s.id), int(s.expires))
local indices = {{sessions_key(), 0, s.id}, {user_sessions_key(s.user), 0, s.id}, {expiry_key(), s.expires, s.id .. ':' .. s.user}}
for _, index in ipairs(indices) do
  redis.call('ZADD', index[1], int(index[2]), index[3])
  redis.call('PEXPIREAT', index[1], int(math.max(s.expires, redis.call('PEXPIRETIME', index[1]))))
end
remember(s, ARGV[8], ARGV[9])
count_usage(now, {unpack(ARGV, 16)})
return {'created', s.id, settings_view(s)}
