-- This library counts requests and tokens in rolling windows of a minute. The functions do the same as those of limit.Window
-- (auth/limit/window.go), step by step. TestLimits_RandomCalls_SameAsAuthLimit compares the two implementations.
-- Defines: bounded, window_count, window_set, window_at, window_add, window_give_back, window_wait, window_reset, window_save, reserve, settle, charge.
--
-- A window is stored as a string: newest and shift (doubles), total and WINDOW_SPAN counts (32 bits each). The string expires
-- WINDOW_KEPT seconds after its last change, when all its counts are too old to matter.

-- Returns a limit, bounded to 0 … MAX_LIMIT.
local function bounded(limit) return math.min(math.max(limit, 0), MAX_LIMIT) end

-- Sets n counts to zero, beginning with the count at index i. The first index is 0.
local function window_clear(w, i, n)
  local first, last = 4 * i + 1, 4 * (i + n)
  if not string.find(string.sub(w.counts, first, last), '[^%z]') then return end
  for j = first, last, 4 do w.total = w.total - struct.unpack('<I4', w.counts, j) end
  w.counts = string.sub(w.counts, 1, first - 1) .. string.rep('\0', 4 * n) .. string.sub(w.counts, last + 1)
end

local function window_count(w, i) return (struct.unpack('<I4', w.counts, 4 * i + 1)) end

local function window_set(w, i, n)
  w.total = w.total + n - window_count(w, i)
  w.counts = string.sub(w.counts, 1, 4 * i) .. struct.pack('<I4', n) .. string.sub(w.counts, 4 * i + 5)
  w.changed = true
end

-- Moves the window on to this second: clears the counts that are too old. If the clock was set back by more than WINDOW_REACH
-- seconds, it changes shift instead, so that the window continues from its newest second.
local function window_advance(w)
  local at = second + w.shift
  if at < w.newest - WINDOW_REACH then -- the clock was set back
    w.shift, w.changed = w.shift + w.newest - at, true
    return
  end
  if at <= w.newest then return end
  local from = math.max(w.newest + 1, at - WINDOW_REACH)
  local n, i = at - from + 1, from % WINDOW_SPAN
  if w.total > 0 then
    window_clear(w, i, math.min(n, WINDOW_SPAN - i))
    if n > WINDOW_SPAN - i then window_clear(w, 0, n - (WINDOW_SPAN - i)) end
  end
  w.newest, w.changed = at, true
end

-- Returns the window that is stored at a key, moved on to this second. A missing window is empty.
local function window_at(key)
  local newest, shift, total, stored, counts = 0, 0, 0, redis.call('GET', key), nil
  if stored then
    newest, shift, total, counts = struct.unpack('<ddI4', stored)
    counts = string.sub(stored, counts)
  else
    counts = string.rep('\0', 4 * WINDOW_SPAN)
  end
  local w = {key = key, newest = newest, shift = shift, total = total, counts = counts, changed = false}
  window_advance(w)
  return w
end

-- Stores a window if it has changed. window_advance changes the window once a second, so requests that add nothing write once a
-- second at most.
local function window_save(w)
  if not w.changed then return end
  redis.call('SET', w.key, struct.pack('<ddI4', w.newest, w.shift, w.total) .. w.counts, 'EX', WINDOW_KEPT)
end

-- Adds n to the count of the newest second. If the total would exceed MAX_TOTAL, it adds less.
local function window_add(w, n)
  n = math.max(0, math.min(n, MAX_TOTAL - w.total))
  if n > 0 then window_set(w, w.newest % WINDOW_SPAN, window_count(w, w.newest % WINDOW_SPAN) + n) end
end

-- Subtracts n from the count of second s, by the window's clock. If that second has left the window, it does nothing.
local function window_give_back(w, s, n)
  if s < math.max(0, w.newest - WINDOW_REACH) or s > w.newest or n <= 0 then return end
  local i = s % WINDOW_SPAN
  local counted = window_count(w, i)
  if counted > 0 then window_set(w, i, counted - math.min(n, counted)) end
end

-- Returns the number of seconds until the window has room for n more. It returns 0 if n fits now, and WINDOW_SPAN if n alone
-- exceeds the limit.
local function window_wait(w, n, limit)
  limit = bounded(limit)
  if n <= 0 then return 0 end
  if n > limit then return WINDOW_SPAN end
  local excess = w.total - (limit - n)
  if excess <= 0 then return 0 end
  local s = math.max(0, w.newest - WINDOW_REACH)
  while true do
    excess = excess - window_count(w, s % WINDOW_SPAN)
    if excess <= 0 then return s + WINDOW_SPAN - w.shift - second end
    s = s + 1
  end
end

-- Returns the second (Unix time) in which the oldest count leaves the window. If the window is empty, it returns this second.
local function window_reset(w)
  if w.total == 0 then return second end
  local oldest = math.max(0, w.newest - WINDOW_REACH)
  local i = oldest % WINDOW_SPAN
  local at = string.match(w.counts, '^%z*()', 4 * i + 1) -- the first byte that is not 0, or the end
  if at > #w.counts then at = string.match(w.counts, '^%z*()') end
  local j = math.floor((at - 1) / 4)
  return oldest + (j - i) % WINDOW_SPAN + WINDOW_SPAN - w.shift
end

-- Reserves tokens in the window at key, but no more than limit. Returns {second, tokens}, which settle needs later. If the tokens
-- do not fit, it reserves none and returns nil and {used, reset, wait}. Call it after every check that can refuse the
-- request.
local function reserve(key, tokens, limit)
  if tokens <= 0 then return {0, 0} end
  local w = window_at(key)
  local n = math.max(1, math.min(tokens, bounded(limit)))
  local wait = window_wait(w, n, limit)
  if wait == 0 then window_add(w, n) end
  window_save(w)
  if wait > 0 then return nil, {w.total, window_reset(w), wait} end
  return {w.newest, n}
end

-- Replaces reserved tokens by the tokens that were used. at is the second of the reservation. Call it once for each reservation.
local function settle(key, at, reserved, used)
  if reserved <= 0 then return end
  local w = window_at(key)
  if used > reserved then
    window_add(w, used - reserved)
  else
    window_give_back(w, at, reserved - math.max(0, used))
  end
  window_save(w)
end

-- Counts tokens that were used without a reservation, even beyond the limit.
local function charge(key, tokens)
  local w = window_at(key)
  window_add(w, tokens)
  window_save(w)
end
