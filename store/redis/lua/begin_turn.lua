-- Begins a turn, or takes a place in the session's queue. By the same waiter it is the same turn, for as long as that is live.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter · ARGV[3] node · ARGV[4] record of the message · ARGV[5] its tokens, with overhead
-- ARGV[6] when busy: 'enqueue', 'reject' or 'interrupt' · ARGV[7] 18 random characters · ARGV[8] idempotency key, '' for none
-- ARGV[9] its digest · ARGV[10] the message as it is indexed · ARGV[11…] counts of usage
-- → {'begun', view, head before, …} (turn_view) · {'replayed', message, reply} ·
--   {'queued', live reply or '', its node or ''} · {'busy'} · {'conflict'} · {'gone'} · {'void'} the waiter was given up (lua/resume_turn.lua) ·
--   {'overflow', tokens, window} · {'tokens', {used, reset, wait}} the limit of tokens refuses
local s = session_at(ARGV[1])
if not s then return {'gone'} end
local waiter, tokens, request = ARGV[2], tonumber(ARGV[5]), ARGV[8]
if s.live and s.waiter == waiter then return turn_view(s) end
if redis.call('EXISTS', TAG .. ':void:' .. waiter) == 1 then return {'void'} end
local known = recall(request, ARGV[9])
if known == 'conflict' then return {'conflict'} end
if known then
  leave(s, waiter)
  return {'replayed', known.asked, known.message}
end
if not may_take(s, waiter) then
  local interrupts = ARGV[6] == 'interrupt'
  if ARGV[6] == 'reject' or not enqueue(s, waiter, ARGV[3], interrupts, request) then return {'busy'} end
  if interrupts and s.live then stop(s, 'cancelled') end
  return {'queued', s.live or '', s.node or ''}
end
local needed = tokens + (s.compress == '1' and 0 or s.htokens)
if needed > budget(s.window) then
  leave(s, waiter)
  return {'overflow', s.htokens + tokens + PROMPT_OVERHEAD + room(s.window), s.window}
end
local prompt = math.min(s.htokens + tokens, budget(s.window)) + PROMPT_OVERHEAD
local reserved, refused = reserve_tokens(prompt + room(s.window))
if not reserved then
  leave(s, waiter)
  return {'tokens', refused}
end
local at, last = math.max(now, s.last), s.last
s.previous = s.head
s.asked = new_id('msg_', at, s.head, string.sub(ARGV[7], 1, 9))
s.live = new_id('msg_', at, s.asked, string.sub(ARGV[7], 10))
s.head, s.last, s.count, s.htokens, s.fence = s.live, at, s.count + 2, s.htokens + tokens, s.fence + 1
s.waiter, s.node, s.stop = waiter, ARGV[3], nil
session_save(s, 'previous', 'asked', 'live', 'head', 'last', 'count', 'htokens', 'fence', 'waiter', 'node', 'stop')
message_add(s, s.asked, tokens, at, ARGV[4])
index_add(s, s.asked, ARGV[10], '')
redis.call('PEXPIREAT', messages_key(s.id), int(s.expires))
redis.call('SET', journal_key(s.id, s.fence), '', 'PXAT', int(s.expires))
turn_keep(s, reserved[1], reserved[2], prompt)
remember(s, request, ARGV[9])
count(at, counts_from(ARGV, 11))
if at > last then count(s.created, {SESSION_TIME, at - last}) end
taken(s, request)
poke(s.id)
return turn_view(s)
