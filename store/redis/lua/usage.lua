-- Counts of usage (conversation/usage): of a day a hash, with a field for the hour of the day and the number of the count. This
-- text follows window.lua. All keys are of the slot of KEYS[1], whose tag they begin with.
--
-- What is counted is of this day or, as sessions live for 24 hours, of the one before. So the counts of older days are packed
-- into a string (pack): that takes a twentieth of the room, and is read without being looked at. Should the clock be set back, and
-- something be counted in such a day after all, it has a hash again beside its string: its counts are the sums of both.

local TAG = string.match(KEYS[1], '^{[^}]*}')
local SESSION_TIME, REQUESTS = 2, 8 -- the usage.Field of that name
local HOUR, KEPT_DAYS, FIELDS_AN_HOUR = 3600000, 400, 512
local PACKED_AT_ONCE, LOOKED_AT = 4, 32 -- days, by the first count of a day
local EXACT = 2 ^ 53 -- numbers above are not

local function int(n) return string.format('%d', n) end

-- Returns the keys of a day's counts: of the hash, and of the string into which they are packed.
local function counts_key(day) return TAG .. ':h:' .. int(day) end
local function packed_key(day) return TAG .. ':p:' .. int(day) end

-- Returns when the counts of a day expire, in milliseconds.
local function counts_expire(day) return int((day + 1 + KEPT_DAYS) * 24 * HOUR) end

-- Returns the newest day in which nothing is counted any more.
local function last_over() return math.floor(now / HOUR / 24) - 2 end

-- Adds a count to the sums by field, and a new field to the list of them. Returns whether it could be: whether it is exact.
local function sum_up(sums, fields, field, n)
  if not field or not n then return false end
  if not sums[field] then fields[#fields + 1] = field end
  sums[field] = (sums[field] or 0) + n
  return math.abs(n) < EXACT and math.abs(sums[field]) < EXACT
end

-- Moves the counts of a day's hash, which are handed over, into the day's string: with MessagePack a list of numbers, in the
-- order of the fields how much higher each is than the one before, and its count. Returns whether it did; a day with a count
-- that Lua has no exact number for, which only a model that lies can bring about, stays as it is.
local function pack(day, counts)
  local sums, fields, list, last = {}, {}, {}, 0
  local packed = redis.call('GET', packed_key(day))
  local before = packed and cmsgpack.unpack(packed) or {}
  for i = 1, #before, 2 do
    last = last + before[i]
    sum_up(sums, fields, last, before[i + 1])
  end
  for i = 1, #counts, 2 do
    if not sum_up(sums, fields, tonumber(counts[i]), tonumber(counts[i + 1])) then return false end
  end
  table.sort(fields)
  last = 0
  for i, field in ipairs(fields) do
    list[2 * i - 1], list[2 * i], last = field - last, sums[field], field
  end
  redis.call('SET', packed_key(day), cmsgpack.pack(list), 'PXAT', counts_expire(day))
  redis.call('UNLINK', counts_key(day))
  return true
end

-- Packs a few of the days that are over: the newest, in each of which there was something to count.
local function pack_days()
  local left = PACKED_AT_ONCE
  for day = last_over(), last_over() - LOOKED_AT + 1, -1 do
    local counts = redis.call('HGETALL', counts_key(day))
    if #counts > 0 and pack(day, counts) then left = left - 1 end
    if left == 0 then return end
  end
end

-- Adds to the counts of the hour of a moment; counts are numbers and what is added, in turn.
local function count(at, counts)
  local hour = math.floor(at / HOUR)
  local day = math.floor(hour / 24)
  local key, new = counts_key(day), false
  for i = 1, #counts, 2 do
    local field, n = int((hour - 24 * day) * FIELDS_AN_HOUR + counts[i]), int(counts[i + 1])
    new = redis.call('HINCRBY', key, field, n) == tonumber(n) or new
  end
  if new and redis.call('PEXPIREAT', key, counts_expire(day), 'NX') == 1 then pack_days() end -- the first of the day
end

-- Returns arguments from the i-th on as counts of usage.
local function counts_from(arguments, i)
  local counts = {}
  for j = i, #arguments do counts[j - i + 1] = tonumber(arguments[j]) end
  return counts
end
