-- Removes all messages of a session if the waiter may take the session. Otherwise it puts the waiter at the head of the queue
-- and, if a reply is live, asks the node that writes the reply to stop.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] waiter · ARGV[3] node of the waiter · ARGV[4] random characters for an id
-- Result: {'cleared', number of removed messages, session_view} · {'queued', live reply or ''}
--   {'busy'} the queue is full · {'gone'} no such session
local s = session_at(ARGV[1])
if not s then return {'gone'} end
if not may_take(s, ARGV[2]) then
  if not enqueue(s, ARGV[2], ARGV[3], true, '') then return {'busy'} end
  if s.live then stop_reply(s, STOP_CLEARED) end
  return {'queued', s.live or ''}
end
local cleared = redis.call('ZCARD', messages_key(s.id))
redis.call('UNLINK', messages_key(s.id), index_key(s.id), summary_key(s.id), vectors_key(s.id))
s.head = new_id(MESSAGE_PREFIX, math.max(now, s.last), s.head, ARGV[4])
s.cleared, s.count, s.htokens = s.head, 0, 0
stored_add(stored_at(s.expires), s, math.min(0, settings_bytes(s) - (s.bytes or 0))) -- the session's settings stay
session_save(s, 'head', 'cleared', 'count', 'htokens', 'bytes')
grant_next(s)
notify_followers(s.id)
return {'cleared', cleared, session_view(s)}
