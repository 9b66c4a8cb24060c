-- The clock, and the windows of auth/limit by it: what Window there does is done here, step by step (a test runs the two
-- side by side). This text stands in front of every script that counts (script.go).
--
-- A window is a string: newest and shift (doubles), total and 61 counts (32 bits each). It expires when all has left.

local clock = redis.call('TIME')
local second = tonumber(clock[1])
local now = second * 1000 + math.floor(tonumber(clock[2]) / 1000) -- milliseconds

local REACH, SPAN, KEPT = 60, 61, 130
local MOST, MOST_LIMIT = 2147483647, 1000000000
local DAY = 86400
local EMPTY = string.rep('\0', 4 * SPAN)

local function bounded(limit) return math.min(math.max(limit, 0), MOST_LIMIT) end

-- Sets n counts from index i on to nothing.
local function window_clear(w, i, n)
  local first, last = 4 * i + 1, 4 * (i + n)
  local at = string.find(w.counts, '[^%z]', first)
  if not at or at > last then return end
  for j = first, last, 4 do w.total = w.total - struct.unpack('<I4', w.counts, j) end
  w.counts = string.sub(w.counts, 1, first - 1) .. string.rep('\0', 4 * n) .. string.sub(w.counts, last + 1)
end

local function window_count(w, i) return (struct.unpack('<I4', w.counts, 4 * i + 1)) end

local function window_set(w, i, n)
  w.total = w.total + n - window_count(w, i)
  w.counts = string.sub(w.counts, 1, 4 * i) .. struct.pack('<I4', n) .. string.sub(w.counts, 4 * i + 5)
  w.changed = true
end

-- Brings the window to this second.
local function window_advance(w)
  local at = second + w.shift
  if at < w.newest - REACH then -- the clock has been set back
    w.shift, w.changed = w.shift + w.newest - at, true
    return
  end
  if at <= w.newest then return end
  local from = math.max(w.newest + 1, at - REACH)
  local n, i = at - from + 1, from % SPAN
  if w.total > 0 then
    window_clear(w, i, math.min(n, SPAN - i))
    if n > SPAN - i then window_clear(w, 0, n - (SPAN - i)) end
  end
  w.newest, w.changed = at, true
end

-- Returns the window of that key as it is now.
local function window_at(key)
  local w = {key = key, newest = 0, shift = 0, total = 0, counts = EMPTY}
  local kept = redis.call('GET', key)
  if kept then
    w.newest, w.shift, w.total = struct.unpack('<ddI4', kept)
    w.counts = string.sub(kept, 21)
  end
  window_advance(w)
  return w
end

-- Stores the window, if it has changed; what was only asked changes it too, at most once a second.
local function window_save(w)
  if not w.changed then return end
  redis.call('SET', w.key, struct.pack('<ddI4', w.newest, w.shift, w.total) .. w.counts, 'EX', KEPT)
end

-- Counts n in the newest second.
local function window_add(w, n)
  n = math.max(0, math.min(n, MOST - w.total))
  if n > 0 then window_set(w, w.newest % SPAN, window_count(w, w.newest % SPAN) + n) end
end

-- Returns after how many seconds n fits: 0 if it does; a minute, if it never does.
local function window_wait(w, n, limit)
  limit = bounded(limit)
  if n <= 0 then return 0 end
  if n > limit then return SPAN end
  local excess = w.total - (limit - n)
  if excess <= 0 then return 0 end
  local s = math.max(0, w.newest - REACH)
  while true do
    excess = excess - window_count(w, s % SPAN)
    if excess <= 0 then return s + SPAN - w.shift - second end
    s = s + 1
  end
end

-- Returns the second in which there begins to be more room.
local function window_reset(w)
  if w.total == 0 then return second end
  local oldest = math.max(0, w.newest - REACH)
  local i = oldest % SPAN
  local at = string.find(w.counts, '[^%z]', 4 * i + 1) or string.find(w.counts, '[^%z]')
  local j = math.floor((at - 1) / 4)
  return oldest + (j - i) % SPAN + SPAN - w.shift
end

-- Reserves tokens, at most the limit: returns {second, tokens}, to be kept for settle, or nil and how the limit
-- stands, {used, reset, wait}. Call it last, when nothing else can refuse.
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

-- Counts what was used beside any reservation, whether it fits or not.
local function charge(key, used)
  local w = window_at(key)
  window_add(w, used)
  window_save(w)
end

-- Replaces what was reserved by what was used. Call it once a reservation.
local function settle(key, at, reserved, used)
  if reserved <= 0 then return end
  local w = window_at(key)
  if used > reserved then
    window_add(w, used - reserved)
  elseif at >= math.max(0, w.newest - REACH) and at <= w.newest then
    local kept = window_count(w, at % SPAN)
    local back = math.min(reserved - math.max(0, used), kept)
    if back > 0 then window_set(w, at % SPAN, kept - back) end
  end
  window_save(w)
end

-- Counts tokens whether they fit or not.
local function charge(key, tokens)
  local w = window_at(key)
  window_add(w, tokens)
  window_save(w)
end
