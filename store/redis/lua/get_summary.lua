-- Returns a session and its summary.
-- KEYS[1] the session
-- ARGV[1] the session's id
-- Result: {session_view, id of the last message in the summary or '', the summary's record or ''} · 'gone' no such session
local s = session_at(ARGV[1])
if not s then return 'gone' end
local summary = redis.call('HMGET', summary_key(s.id), 'last', 'record')
return {session_view(s), summary[1] or '', summary[2] or ''}
