-- The queue of a session: its waiters in order, and the waiter to which the free session is granted. When a session becomes free,
-- it is granted to the first waiter in its queue.
-- Defines: enqueue, leave, grant_next, may_take, turn_taken, drop_waiters_of, wake_all, WOKEN.
--
-- A waiter tries again at least every second (waiterRetry in Go), which shows that it is alive. queue_of drops a waiter that has
-- not tried for WAITER_TIMEOUT. A grant that is not used within WAITER_TIMEOUT goes to the next waiter.

local NAME, NODE, INTERRUPTS, REQUEST, SEEN = 1, 2, 3, 4, 5 -- indices in a waiter's array

-- The waiters that this script has woken, as "<session>!<waiter>". The script returns them so that the caller's node wakes its
-- own at once. Waiters of other nodes are woken through the inboxes.
local WOKEN = {}

local function wake(s, w)
  local word = waiter_word(s.id, w[NAME])
  WOKEN[#WOKEN + 1] = word
  notify_node(w[NODE], word)
end

local function queue_of(s)
  if not s.waiting then
    s.waiting = {}
    for _, w in ipairs(s.queue and cmsgpack.unpack(s.queue) or {}) do
      if now - w[SEEN] <= WAITER_TIMEOUT then s.waiting[#s.waiting + 1] = w end
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

-- Grants a session that has become free to the first waiter in its queue, if any, and wakes that waiter.
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

-- Reports whether a waiter may take the session now: no turn is live, and the session is not granted to another waiter. A grant
-- that was not used in time goes to the next waiter first.
local function may_take(s, name)
  if s.live then return false end
  if s.granted and s.granted ~= name and now - s.grantedAt > WAITER_TIMEOUT then grant_next(s) end
  return not s.granted or s.granted == name
end

-- Puts a waiter in the queue: at the end or, if it interrupts, at the head. A waiter that is already queued keeps its place.
-- Returns false if the queue is full.
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

-- Removes the grant after a waiter has begun a turn. request is the idempotency key of its request, '' for none. It wakes the
-- waiters that interrupt, so that they interrupt this turn, and those with the same request, so that they get this turn replayed.
local function turn_taken(s, request)
  if not s.queue and not s.granted then return end
  s.granted, s.grantedAt = nil, nil
  for _, w in ipairs(queue_of(s)) do
    if w[INTERRUPTS] or request ~= '' and w[REQUEST] == request then wake(s, w) end
  end
  queue_save(s)
end

-- Removes a waiter from the queue. If the session is granted to the waiter, it grants the session to the next one.
local function leave(s, name)
  local place = place_of(s, name)
  if place then
    table.remove(queue_of(s), place)
    queue_save(s)
  elseif s.granted and s.granted == name then
    grant_next(s)
  end
end

-- Removes the waiters of a dead node. The caller must save the queue, for example by grant_next.
local function drop_waiters_of(s, node)
  local waiting = queue_of(s)
  for i = #waiting, 1, -1 do
    if waiting[i][NODE] == node then table.remove(waiting, i) end
  end
end

-- Wakes all waiters, because the session is gone.
local function wake_all(s)
  for _, w in ipairs(queue_of(s)) do wake(s, w) end
end
