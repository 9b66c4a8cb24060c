-- This library ends turns. It settles the turn's reservation, empties the journal, and grants the session to the next waiter.
-- Defines: reservation_save, reservation_at, settle_turn, empty_journal, end_turn.
--
-- The reservation of a turn has a key of its own, which outlives the session by an hour. It holds the reply, the fencing token,
-- the second and tokens of the reservation, the estimated tokens of the prompt, the node, and the waiter. A session has at most
-- one reservation: that of its live turn, or of the turn that was live when the session was deleted or expired. So
-- find_orphan.lua finds a turn by its session.
--
-- If the turn has also reserved tokens of its user, a second key holds the reply, the user, and the second and tokens of that
-- reservation. The first key has kept its format, because nodes of earlier versions read it.

-- Stores the reservation of a session's live turn. of_account and of_user are {second, tokens}; of_user is nil if the turn has
-- reserved no tokens of the user. estimate is the estimated tokens of the prompt.
local function reservation_save(s, of_account, of_user, estimate)
  local expires = int(s.expires + RESERVATION_OUTLIVES)
  redis.call('SET', reservation_key(s.id),
    table.concat({s.live, int(s.fence), int(of_account[1]), int(of_account[2]), int(estimate), s.node, s.waiter}, ' '),
    'PXAT', expires)
  if of_user then
    local record = {s.live, s.user, int(of_user[1]), int(of_user[2])}
    redis.call('SET', user_reservation_key(s.id), table.concat(record, ' '), 'PXAT', expires)
  end
end

-- Returns the reservation of a session's unsettled turn, or nil if there is none. Also returns the stored text of the second
-- key, or nil.
local function reservation_at(id)
  local stored, of_user = unpack(redis.call('MGET', reservation_key(id), user_reservation_key(id)))
  if not stored then return nil end
  local reply, fence, at, tokens, estimate, node, waiter = string.match(stored, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%S*) (.*)$')
  return {reply = reply, fence = tonumber(fence), second = tonumber(at), tokens = tonumber(tokens), estimate = tonumber(estimate),
    node = node, waiter = waiter}, of_user
end

-- Settles a turn: replaces the turn's reservation with the tokens that were used, and counts the turn's usage. Returns false
-- and does nothing if the turn was settled before.
local function settle_turn(id, fence, reply, used, counts)
  local r, of_user = reservation_at(id)
  if not r or r.reply ~= reply or r.fence ~= fence then return false end
  redis.call('DEL', reservation_key(id), user_reservation_key(id))
  settle(tokens_key(), r.second, r.tokens, used)
  if of_user then
    local of, user, at, tokens = string.match(of_user, '^(%S+) (%S+) (%d+) (%d+)$')
    -- Otherwise, the second key is that of an earlier turn.
    if of == reply then settle(user_tokens_key(user), tonumber(at), tonumber(tokens), used) end
  end
  count_usage(now, counts)
  return true
end

-- Empties the journal of a turn that has ended. The key stays for JOURNAL_OUTLIVES, because a node that was suspended may still
-- write to it: on a missing key, SETRANGE would create a key that never expires.
local function empty_journal(id, fence) redis.call('SET', journal_key(id, fence), '', 'PX', JOURNAL_OUTLIVES) end

-- Ends the live turn of a session. record is the reply's record, tokens the reply's size in a prompt, and bytes its size in the
-- quota storedBytes. unanswered means that later prompts leave out the whole exchange. usage is {prompt tokens, completion tokens,
-- total tokens}. counts are the counts of usage.
local function end_turn(s, record, tokens, unanswered, bytes, usage, counts)
  message_add(s, s.live, tokens, s.last, record)
  if unanswered then s.htokens = s.htokens - message_skip(s, s.asked) end
  settle_turn(s.id, s.fence, s.live, usage[3], counts)
  empty_journal(s.id, s.fence)
  stored_add(stored_at(s.expires), s, bytes)
  s.htokens = s.htokens + tokens
  s.prompt, s.completion, s.total = s.prompt + usage[1], s.completion + usage[2], s.total + usage[3]
  s.live, s.asked, s.previous, s.node, s.waiter, s.stop = nil, nil, nil, nil, nil, nil
  session_save(s, 'htokens', 'prompt', 'completion', 'total', 'live', 'asked', 'previous', 'node', 'waiter', 'stop', 'bytes')
  grant_next(s)
  notify_followers(s.id)
end
