-- Removes a session with all that belongs to it. What settles its live turn stays (lua/session.lua).
-- KEYS[1] the session
-- ARGV[1] its id
-- → view (lua/session.lua) of the session as it was · 'gone'
local s = session_at(ARGV[1])
if not s then return 'gone' end
redis.call('UNLINK', session_key(s.id), messages_key(s.id), index_key(s.id), summary_key(s.id), vectors_key(s.id))
redis.call('ZREM', TAG .. ':i', s.id)
redis.call('ZREM', TAG .. ':u:' .. s.user, s.id)
redis.call('ZREM', TAG .. ':x', s.id .. ':' .. s.user)
if s.live then journal_end(s.id, s.fence) end
dissolve(s)
poke(s.id, s.node)
redis.call('DEL', TAG .. ':v:' .. s.id)
return session_view(s)
