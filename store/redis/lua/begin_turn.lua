-- Begins a turn, or puts the waiter in the session's queue. A repeat with the same waiter returns the same turn while the turn is
-- live.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] waiter · ARGV[3] node · ARGV[4] record of the message
-- ARGV[5] the message's tokens in a prompt
-- ARGV[6] what to do if the session is busy: 'enqueue', 'reject' or 'interrupt' · ARGV[7] random characters for two ids
-- ARGV[8] idempotency key, '' for none · ARGV[9] digest of the request · ARGV[10] the message's record in the index
-- ARGV[11] the message's bytes in the quota storedBytes · ARGV[12] the quota, '0' for no limit
-- ARGV[13] '' if the tokens of a calendar month are not limited. Else three numbers, separated by spaces: the limit, the first
--   hour of this month, and the first hour of the next month
-- ARGV[14…] counts of usage
-- Result: one of
--   {'begun', …}                          the result of turn_view
--   {'replayed', message, reply}          ids of the turn that the same request began before
--   {'queued', live reply or '', node that writes the reply or ''}
--   {'busy'}                              ARGV[6] is 'reject', or the queue is full
--   {'conflict'}                          another request used the idempotency key
--   {'gone'}                              no such session
--   {'void'}                              resume_turn.lua has voided the waiter
--   {'overflow', tokens, window}          the prompt would not fit the window
--   {'quota', name, used part}            the message does not fit the quota of stored bytes, or the account has used up its tokens
--                                         of the month
--   {'tokens', {used, reset, wait}}       a limit of tokens a minute is exceeded; for a user's limit, 'user' follows wait
local s = session_at(ARGV[1])
if not s then return {'gone'} end
local waiter, tokens, request = ARGV[2], tonumber(ARGV[5]), ARGV[8]
if s.live and s.waiter == waiter then return turn_view(s) end
if redis.call('EXISTS', void_key(waiter)) == 1 then return {'void'} end
local known = recall(request, ARGV[9])
if known == 'conflict' then return {'conflict'} end
if known then
  leave(s, waiter)
  return {'replayed', known.asked, known.message}
end
if not may_take(s, waiter) then
  local interrupts = ARGV[6] == ON_BUSY_INTERRUPT
  if ARGV[6] == ON_BUSY_REJECT or not enqueue(s, waiter, ARGV[3], interrupts, request) then return {'busy'} end
  if interrupts and s.live then stop_reply(s, STOP_CANCELLED) end
  return {'queued', s.live or '', s.node or ''}
end
local needed = tokens + (s.compress == '1' and 0 or s.htokens)
if needed > budget(s) then
  leave(s, waiter)
  return {'overflow', s.htokens + tokens + overhead(s) + reply_room(s), s.window}
end
local stored, bytes = stored_at(s.expires), tonumber(ARGV[11])
if not stored_fits(stored, bytes, ARGV[12]) then
  leave(s, waiter)
  return {'quota', QUOTA_STORED_BYTES, stored.total}
end
if ARGV[13] ~= '' then
  local most, first, following = string.match(ARGV[13], '^(%d+) (%d+) (%d+)$')
  local used = month_tokens(tonumber(first), tonumber(following))
  if used >= tonumber(most) then
    leave(s, waiter)
    return {'quota', QUOTA_TOKENS_PER_MONTH, used}
  end
end
local prompt = math.min(s.htokens + tokens, budget(s)) + overhead(s)
local reserved, refused, of_user = reserve_tokens(prompt + math.max(s.reply or 0, reply_room(s)), s.user)
if not reserved then
  leave(s, waiter)
  return {'tokens', refused}
end
local at, last = math.max(now, s.last), s.last
s.previous = s.head
local asked_at
s.asked, asked_at = new_id(MESSAGE_PREFIX, at, s.head, string.sub(ARGV[7], 1, RANDOM_LENGTH))
s.live = new_id(MESSAGE_PREFIX, asked_at + 1, nil, string.sub(ARGV[7], RANDOM_LENGTH + 1))
s.head, s.last, s.count, s.htokens, s.fence = s.live, at, s.count + 2, s.htokens + tokens, s.fence + 1
s.waiter, s.node = waiter, ARGV[3]
stored_add(stored, s, bytes)
session_save(s, 'previous', 'asked', 'live', 'head', 'last', 'count', 'htokens', 'fence', 'waiter', 'node', 'bytes')
if s.stop then redis.call('HDEL', session_key(s.id), 'stop') end
message_add(s, s.asked, tokens, at, ARGV[4])
index_add(s, s.asked, ARGV[10], '')
if s.count == 2 then redis.call('PEXPIREAT', messages_key(s.id), int(s.expires)) end -- the first turn, or the first after a clear
redis.call('SET', journal_key(s.id, s.fence), '', 'PXAT', int(s.expires))
reservation_save(s, reserved, of_user, prompt)
remember(s, request, ARGV[9])
count_usage(at, {unpack(ARGV, 14)})
if at > last then count_usage(s.created, {SESSION_TIME_FIELD, int(at - last)}) end
turn_taken(s, request)
notify_followers(s.id)
return turn_view(s)
