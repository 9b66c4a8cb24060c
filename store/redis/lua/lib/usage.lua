-- This library stores counts of usage (conversation/usage). The counts of a day are a hash: the field is hour × FIELDS_AN_HOUR +
-- usage.Field.
-- Defines: count_usage, month_tokens, last_packable_day, pack_day.
--
-- Operations add counts to today or, because a session lives for 24 hours, to yesterday. pack_day packs the counts of an older
-- day into a string, which takes a twentieth of the memory. Scripts return the string to Go unchanged. If the clock is set back,
-- an operation may count in a packed day. Then a hash exists beside the string, and the counts of the day are the sums of hash
-- and string.

-- Returns the time in milliseconds at which the counts of a day expire.
local function counts_expire(day) return int((day + 1 + KEPT_DAYS) * DAY_SECONDS * 1000) end

-- Returns the newest day that may be packed: the day before yesterday.
local function last_packable_day() return math.floor(second / DAY_SECONDS) - 2 end

-- Adds n to the sum of a field in sums. If the field has no sum yet, it also appends the field to the list fields. Returns false
-- if n or the sum is too large for Lua to represent exactly, or if field or n is nil.
local function sum_up(sums, fields, field, n)
  if not field or not n then return false end
  if not sums[field] then fields[#fields + 1] = field end
  sums[field] = (sums[field] or 0) + n
  return math.abs(n) < MAX_EXACT and math.abs(sums[field]) < MAX_EXACT
end

-- Packs a day: moves its counts from the hash to the string. counts are the contents of the hash. The string is a MessagePack
-- list with two numbers for each field, in ascending order of the fields: the difference from the previous field, and the count.
-- If Lua cannot represent a count exactly, pack_day returns false and changes nothing. Only a model that reports absurd numbers
-- causes such a count.
local function pack_day(day, counts)
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

-- Packs the newest days that are not packed. It packs DAYS_PACKED_BY_COUNT days at most, so that no request waits long.
local function pack_days()
  local left = DAYS_PACKED_BY_COUNT
  for day = last_packable_day(), last_packable_day() - DAYS_SEARCHED + 1, -1 do
    local counts = redis.call('HGETALL', counts_key(day))
    if #counts > 0 and pack_day(day, counts) then left = left - 1 end
    if left == 0 then return end
  end
end

-- Sets the expiry of a day's counts at a key. If the expiry was not set, because the day is new, it also packs earlier days.
local function expire_counts(key, day)
  if redis.call('PEXPIREAT', key, counts_expire(day), 'NX') == 1 then pack_days() end
end

-- Adds counts of usage to the hour of the time at, in milliseconds. counts is {usage.Field, amount, usage.Field, amount, …}. The
-- amounts are texts, as in ARGV. If the first count becomes equal to its amount, it may be the first count of a day. Then
-- count_usage calls expire_counts.
local function count_usage(at, counts)
  if #counts == 0 then return end
  local hour = math.floor(at / HOUR)
  local day = math.floor(hour / 24)
  local key, first = counts_key(day), (hour - 24 * day) * FIELDS_AN_HOUR
  local new = redis.call('HINCRBY', key, int(first + counts[1]), counts[2]) == tonumber(counts[2])
  for i = 3, #counts, 2 do redis.call('HINCRBY', key, int(first + counts[i]), counts[i + 1]) end
  if new then expire_counts(key, day) end
end

-- Returns the tokens that count in the hours from … to-1 of a day.
local function day_tokens(day, from, to)
  local fields, sum = {}, 0
  for hour = from - 24 * day, to - 1 - 24 * day do
    fields[#fields + 1] = hour * FIELDS_AN_HOUR + PROMPT_TOKENS_FIELD
    fields[#fields + 1] = hour * FIELDS_AN_HOUR + COMPLETION_TOKENS_FIELD
  end
  for _, n in ipairs(redis.call('HMGET', counts_key(day), unpack(fields))) do sum = sum + (tonumber(n) or 0) end
  local packed = day <= last_packable_day() and redis.call('GET', packed_key(day))
  if not packed then return sum end
  local wanted, list, field = {}, cmsgpack.unpack(packed), 0
  for _, f in ipairs(fields) do wanted[f] = true end
  for i = 1, #list, 2 do
    field = field + list[i]
    if wanted[field] then sum = sum + list[i + 1] end
  end
  return sum
end

-- Returns the tokens that count in this calendar month (UTC), which begins with the hour first. next is the first hour of the
-- next month. Redis keeps the sum of the hours before this hour, as a text: first hour of the month, this hour, sum. So a call
-- reads the counts of this hour. The first call of an hour also reads the counts of the hours since the last sum. If there is
-- no sum, because the last one is older than MONTH_KEPT seconds, a call reads up to 31 days.
local function month_tokens(first, next)
  local this = math.floor(now / HOUR)
  if this >= next then first = next end -- the clock of the node that has computed first and next is behind
  local from, sum = first, 0
  local month, hour, tokens = string.match(redis.call('GET', month_key()) or '', '^(%d+) (%d+) (%d+)$')
  if tonumber(month) == first and tonumber(hour) <= this then from, sum = tonumber(hour), tonumber(tokens) end
  if from < this then
    for day = math.floor(from / 24), math.floor((this - 1) / 24) do
      sum = sum + day_tokens(day, math.max(from, 24 * day), math.min(this, 24 * day + 24))
    end
    redis.call('SET', month_key(), table.concat({int(first), int(this), int(sum)}, ' '), 'EX', MONTH_KEPT)
  end
  return sum + day_tokens(math.floor(this / 24), this, this + 1)
end
