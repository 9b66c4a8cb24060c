-- This library counts the bytes that an owner keeps, for the quota storedBytes (limit.QuotaStoredBytes).
-- Defines: stored_at, stored_fits, stored_add, stored_begin.
--
-- Redis removes an expired session without a script. So the hash TAG:b counts the bytes of sessions by the period in which the
-- sessions expire. A period lasts STORED_PERIOD milliseconds. When a period has passed, stored_at subtracts all its bytes from
-- the total at once. So no script loops over sessions, and an error in a count lasts at most a day. Such an error occurs if a
-- node of an earlier version, which counts no bytes, deletes or clears a session.

-- Subtracts the bytes of the periods from b.first to current - 1 from the total. A day has STORED_PERIODS periods.
local function give_back(b, current)
  local past = {}
  for period = math.max(b.first, current - STORED_PERIODS), current - 1 do past[#past + 1] = int(period) end
  for _, bytes in ipairs(redis.call('HMGET', stored_key(), unpack(past))) do b.total = b.total - (bytes or 0) end
  b.first = current
  redis.call('HDEL', stored_key(), unpack(past))
  redis.call('HSET', stored_key(), 'total', int(b.total), 'first', int(b.first))
end

-- Returns the counts of the owner's stored bytes as a table b. b.total counts all sessions. b.period is the period of the time
-- expires, and b.bytes counts the sessions that expire in this period.
local function stored_at(expires)
  local current, b = math.floor(now / STORED_PERIOD), {period = math.floor(expires / STORED_PERIOD)}
  local kept = redis.call('HMGET', stored_key(), 'total', 'first', int(b.period))
  b.new, b.first = not kept[2], tonumber(kept[2] or current)
  b.total, b.bytes = tonumber(kept[1] or 0), tonumber(kept[3] or 0)
  if b.first < current then give_back(b, current) end
  return b
end

-- Reports whether n more bytes fit the quota. '0' is no limit.
local function stored_fits(b, n, quota) return quota == '0' or b.total + n <= tonumber(quota) end

-- Adds n to the bytes of a session and of its owner. n may be negative. b is the result of stored_at for the session's expiry.
-- The caller must store the session's field bytes. It keeps each count from becoming negative, because the counts lack the
-- bytes that nodes of earlier versions have stored.
local function stored_add(b, s, n)
  n = math.max(n, -(s.bytes or 0))
  s.bytes = (s.bytes or 0) + n
  n = math.max(n, -b.bytes)
  if b.period < b.first then return end -- the clock was set back: the period's bytes were subtracted before
  redis.call('HSET', stored_key(), 'total', int(b.total + n), 'first', int(b.first), int(b.period), int(b.bytes + n))
  if b.new then redis.call('PEXPIREAT', stored_key(), int(s.expires)) end
end

-- Counts a new session with n bytes. The hash TAG:b then expires with the owner's last session.
local function stored_begin(b, s, n)
  stored_add(b, s, n)
  redis.call('PEXPIREAT', stored_key(), int(s.expires), 'GT')
end
