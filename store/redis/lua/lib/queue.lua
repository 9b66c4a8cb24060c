-- This library manages the queue of a session, a list of waiters. When the session becomes free, it is granted to the first
-- waiter. This waiter leaves the queue and may begin its turn.
-- Defines: enqueue, leave, grant_next, may_take, turn_taken, drop_waiters_of, wake_all, WOKEN.
--
-- A waiter tries again at least every second (waiterRetry in Go), which shows that the waiter is alive. queue_of drops a waiter
-- that has not tried for WAITER_TIMEOUT. A grant that is not used within WAITER_TIMEOUT goes to the next waiter.

-- A waiter is an array with these indices: its name, its node, whether it interrupts, the idempotency key of its request, and the
-- time in milliseconds when it last tried.
local NAME, NODE, INTERRUPTS, REQUEST, SEEN = 1, 2, 3, 4, 5

-- The waiters that this script has woken, as "<session>!<waiter>". The script returns this list, so that the caller's node wakes
-- its own waiters at once. Other nodes learn from their inboxes which waiters to wake.
local WOKEN = {}

-- Wakes a waiter: it tries again at once.
local function wake(s, w)
  local word = waiter_word(s.id, w[NAME])
  WOKEN[#WOKEN + 1] = word
  notify_node(w[NODE], word)
end

-- Returns the queue of a session, without the waiters that have not tried for WAITER_TIMEOUT.
local function queue_of(s)
  if not s.waiting then
    s.waiting = {}
    for _, w in ipairs(s.queue and cmsgpack.unpack(s.queue) or {}) do
      if now - w[SEEN] <= WAITER_TIMEOUT then s.waiting[#s.waiting + 1] = w end
    end
  end
  return s.waiting
end

-- Stores the queue and the grant of a session. Call queue_of before.
local function queue_save(s)
  s.queue = #s.waiting > 0 and cmsgpack.pack(s.waiting) or nil
  session_save(s, 'queue', 'granted', 'grantedAt')
end

-- Returns the index of a waiter in the queue, or nil if the waiter is not in the queue.
local function place_of(s, name)
  for i, w in ipairs(queue_of(s)) do
    if w[NAME] == name then return i end
  end
end

-- Ends the current grant, if any. Then it grants the free session to the first waiter in the queue, if any, and wakes that
-- waiter.
local function grant_next(s)
  if not s.queue and not s.granted then return end
  local next = table.remove(queue_of(s), 1)
  s.granted, s.grantedAt = nil, nil
  if next then
    s.granted, s.grantedAt = next[NAME], now
    wake(s, next)
  end
  queue_save(s)
end

-- Reports whether a waiter may take the session now: no turn is live, and the session is not granted to another waiter. If a
-- grant was not used in time, may_take first grants the session to the next waiter.
local function may_take(s, name)
  if s.live then return false end
  if s.granted and s.granted ~= name and now - s.grantedAt > WAITER_TIMEOUT then grant_next(s) end
  return not s.granted or s.granted == name
end

-- Puts a waiter in the queue: at the head if the waiter interrupts, otherwise at the end. A waiter that is already in the queue
-- keeps its place. Returns false if the queue is full.
local function enqueue(s, name, node, interrupts, request)
  local waiting, place = queue_of(s), place_of(s, name)
  if place then
    waiting[place][NODE], waiting[place][SEEN] = node, now
  elseif #waiting >= QUEUE_PLACES then
    return false
  else
    table.insert(waiting, interrupts and 1 or #waiting + 1, {name, node, interrupts, request, now})
  end
  queue_save(s)
  return true
end

-- Ends the grant after a waiter has begun a turn. request is the idempotency key of the turn, '' for none. turn_taken wakes the
-- waiters that interrupt, so that they interrupt this turn. It also wakes the waiters with the same key, so that they get a
-- replay of this turn.
local function turn_taken(s, request)
  if not s.queue and not s.granted then return end
  s.granted, s.grantedAt = nil, nil
  for _, w in ipairs(queue_of(s)) do
    if w[INTERRUPTS] or request ~= '' and w[REQUEST] == request then wake(s, w) end
  end
  queue_save(s)
end

-- Removes a waiter from the queue. If the session is granted to the waiter, leave grants the session to the next waiter.
local function leave(s, name)
  local place = place_of(s, name)
  if place then
    table.remove(queue_of(s), place)
    queue_save(s)
  elseif s.granted and s.granted == name then
    grant_next(s)
  end
end

-- Removes the waiters of a dead node from the queue. The caller must then store the queue, for example with grant_next.
local function drop_waiters_of(s, node)
  local waiting = queue_of(s)
  for i = #waiting, 1, -1 do
    if waiting[i][NODE] == node then table.remove(waiting, i) end
  end
end

-- Wakes all waiters in the queue, because the session is gone.
local function wake_all(s)
  for _, w in ipairs(queue_of(s)) do wake(s, w) end
end
