-- The queue of a session (design section 2, two sends at once): those who wait, in their order, and whom the free session
-- is kept for. Whenever a session becomes free, it is kept for the first in its queue. This text follows session.lua.
--
-- A waiter tries again at least every second, which shows that it is there. One that was not seen for 5 s is dropped by
-- whoever meets the queue; a session that was kept for somebody for 5 s goes to the next.

local PLACES, PATIENCE = 32, 5000
local NAME, NODE, INTERRUPTS, REQUEST, SEEN = 1, 2, 3, 4, 5 -- of a waiter, which is an array

-- Who was told to try again: "<session>!<waiter>" each. The caller hears it with the answer, as it may be on its node; the
-- waiter's node, by its inbox.
local WOKEN = {}

local function wake(s, w)
  local word = s.id .. '!' .. w[NAME]
  WOKEN[#WOKEN + 1] = word
  poke_node(w[NODE], word)
end

local function queue_of(s)
  if not s.waiting then
    s.waiting = {}
    for _, w in ipairs(s.queue and cmsgpack.unpack(s.queue) or {}) do
      if now - w[SEEN] <= PATIENCE then s.waiting[#s.waiting + 1] = w end
    end
  end
  return s.waiting
end

local function queue_save(s)
  s.queue = #s.waiting > 0 and cmsgpack.pack(s.waiting) or nil
  session_save(s, 'queue', 'granted', 'grantedAt')
end

local function place_of(s, name)
  for i, w in ipairs(queue_of(s)) do
    if w[NAME] == name then return i end
  end
end

-- Keeps a session that has become free for the next in its queue, if there is one, and tells it.
local function hand_over(s)
  if not s.queue and not s.granted then return end
  local next = table.remove(queue_of(s), 1)
  s.granted, s.grantedAt = nil, nil
  if next then
    s.granted, s.grantedAt = next[NAME], now
    wake(s, next)
  end
  queue_save(s)
end

-- Whether a waiter may take the session as it is: nobody has it, and it is kept for nobody else.
local function may_take(s, name)
  if s.live then return false end
  if s.granted and s.granted ~= name and now - s.grantedAt > PATIENCE then hand_over(s) end
  return not s.granted or s.granted == name
end

-- Gives a waiter a place, at the end or, if it interrupts, at the head; one that has a place keeps it. Returns false if all
-- places are taken.
local function enqueue(s, name, node, interrupts, request)
  local waiting, place = queue_of(s), place_of(s, name)
  if place then
    waiting[place][NODE], waiting[place][SEEN] = node, now
  elseif #waiting >= PLACES then
    return false
  else
    table.insert(waiting, interrupts and 1 or #waiting + 1, {name, node, interrupts, request, now})
  end
  queue_save(s)
  return true
end

-- Notes that a turn has begun, by the request of that idempotency key, '' for none: the session is kept for nobody any more;
-- those who interrupt are told, so that they look whose turn it is, and those who wait to make the same request.
local function taken(s, request)
  if not s.queue and not s.granted then return end
  s.granted, s.grantedAt = nil, nil
  for _, w in ipairs(queue_of(s)) do
    if w[INTERRUPTS] or request ~= '' and w[REQUEST] == request then wake(s, w) end
  end
  queue_save(s)
end

-- Gives up a waiter's place, or the session if it is kept for it.
local function leave(s, name)
  local place = place_of(s, name)
  if place then
    table.remove(queue_of(s), place)
    queue_save(s)
  elseif s.granted and s.granted == name then
    hand_over(s)
  end
end

-- Drops those who wait on a node that is gone.
local function queue_drop(s, node)
  local waiting = queue_of(s)
  for i = #waiting, 1, -1 do
    if waiting[i][NODE] == node then table.remove(waiting, i) end
  end
end

-- Tells all who wait that the session is gone.
local function dissolve(s)
  for _, w in ipairs(queue_of(s)) do wake(s, w) end
end

-- Ends the live turn of a session, once: with the reply's record, what it takes in a prompt, its usage {prompt, completion,
-- total} and counts. The session goes to the next in its queue.
local function end_turn(s, record, tokens, usage, counts)
  message_add(s, s.live, tokens, s.last, record)
  turn_settle(s.id, s.fence, s.live, usage[3], counts)
  journal_end(s.id, s.fence)
  s.htokens = s.htokens + tokens
  s.prompt, s.completion, s.total = s.prompt + usage[1], s.completion + usage[2], s.total + usage[3]
  s.live, s.asked, s.previous, s.node, s.waiter, s.stop = nil, nil, nil, nil, nil, nil
  session_save(s, 'htokens', 'prompt', 'completion', 'total', 'live', 'asked', 'previous', 'node', 'waiter', 'stop')
  hand_over(s)
  poke(s.id)
end
