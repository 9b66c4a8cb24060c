-- Removes a session with its messages, index, summary and vectors, and empties the journal of its live reply. The reservation of
-- the live turn stays until the turn is settled (lib/turn.lua). The script also removes records of the session's idempotency keys,
-- but only a limited number. While records are left, the caller must run forget_requests.lua.
-- KEYS[1] the session
-- ARGV[1] the session's id
-- Result: {session_view before the removal, 1 if records of idempotency keys are left, else 0} · 'gone' no such session
local s = session_at(ARGV[1])
if not s then return 'gone' end
redis.call('UNLINK', session_key(s.id), messages_key(s.id), index_key(s.id), summary_key(s.id), vectors_key(s.id))
redis.call('ZREM', sessions_key(), s.id)
redis.call('ZREM', user_sessions_key(s.user), s.id)
redis.call('ZREM', expiry_key(), s.id .. ':' .. s.user)
stored_add(stored_at(s.expires), s, -(s.bytes or 0))
if s.live then empty_journal(s.id, s.fence) end
wake_all(s)
notify_followers(s.id, s.node)
redis.call('DEL', followers_key(s.id))
return {session_view(s), forget_requests(s.id)}
