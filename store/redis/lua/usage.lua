-- Counts of usage (conversation/usage): of a day a hash, with a field for the hour of the day and the number of the count. This
-- text follows window.lua. All keys are of the slot of KEYS[1], whose tag they begin with.

local TAG = string.match(KEYS[1], '^{[^}]*}')
local SESSION_TIME, REQUESTS = 2, 8 -- the usage.Field of that name
local HOUR, KEPT_DAYS, FIELDS_AN_HOUR = 3600000, 400, 512

local function int(n) return string.format('%d', n) end

-- Returns the key of a day's counts.
local function counts_key(day) return TAG .. ':h:' .. int(day) end

-- Adds to the counts of the hour of a moment; counts are numbers and what is added, in turn.
local function count(at, counts)
  local hour = math.floor(at / HOUR)
  local day = math.floor(hour / 24)
  local key, new = counts_key(day), false
  for i = 1, #counts, 2 do
    local field, n = int((hour - 24 * day) * FIELDS_AN_HOUR + counts[i]), int(counts[i + 1])
    new = redis.call('HINCRBY', key, field, n) == tonumber(n) or new
  end
  if new then redis.call('PEXPIREAT', key, int((day + 1 + KEPT_DAYS) * 24 * HOUR)) end
end

-- Returns arguments from the i-th on as counts of usage.
local function counts_from(arguments, i)
  local counts = {}
  for j = i, #arguments do counts[j - i + 1] = tonumber(arguments[j]) end
  return counts
end
