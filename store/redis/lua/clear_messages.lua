-- Removes all messages of a session, if that is free; else takes the head of its queue and has the live reply stop.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter · ARGV[3] its node · ARGV[4] 9 random characters
-- → {'cleared', how many, view (lua/session.lua)} · {'queued', live reply or ''} · {'busy'} all places are taken · {'gone'}
local s = session_at(ARGV[1])
if not s then return {'gone'} end
if not may_take(s, ARGV[2]) then
  if not enqueue(s, ARGV[2], ARGV[3], true, '') then return {'busy'} end
  if s.live then stop(s, 'cleared') end
  return {'queued', s.live or ''}
end
local cleared = redis.call('ZCARD', messages_key(s.id))
redis.call('UNLINK', messages_key(s.id), index_key(s.id), summary_key(s.id), vectors_key(s.id))
s.head = new_id('msg_', math.max(now, s.last), s.head, ARGV[4])
s.cleared, s.count, s.htokens = s.head, 0, 0
session_save(s, 'head', 'cleared', 'count', 'htokens')
hand_over(s)
poke(s.id)
return {'cleared', cleared, session_view(s)}
