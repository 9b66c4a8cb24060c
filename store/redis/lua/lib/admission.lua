-- This library admits a request before the operation, in the same script: it checks the API key and counts the request. script.go
-- turns the operation into a function. The function gets the KEYS and ARGV that follow those listed here.
-- Defines: admitted, reserve_tokens.
--
-- KEYS[1] record of the API key · KEYS[2] window of requests · KEYS[3] window of tokens · KEYS[4] test keys' requests of a day
-- ARGV[1] '' do nothing; 'check' check the API key; 'count' check the API key, and count the request
-- ARGV[2] hash of the secret; '' for the API key from the configuration, which always works
-- ARGV[3] limit of requests a minute · ARGV[4] limit of tokens a minute · ARGV[5] limit of requests a day; '' if not a test key
-- Result: {admission, result of the operation}. admission is one of
--   {'none'}                        no request was counted
--   {'key'}                         the API key does not work; the operation did not run
--   {'admitted', used, reset, wait} of the limit of requests a minute; for a test key, then of the limit of requests a day
--   {'refused', …}                  the same figures; the operation did not run

-- Reports whether a secret works for an API key now. key is the name of the API key's record, secret the hash of the secret.
local function key_works(key, secret)
  local k = redis.call('HMGET', key, 'secret', 'previous', 'until', 'expires')
  local function ahead(time) return not time or time == '' or now < tonumber(time) end
  if not ahead(k[4]) then return false end
  return k[1] == secret or k[2] == secret and ahead(k[3])
end

-- Returns the count of requests that is stored at a key, as a table: key, number (of the UTC day), count, changed. If the stored
-- count is of an earlier day, the table is of today, and its count is 0.
local function day_at(key)
  local d = {key = key, number = 0, count = 0}
  local stored = redis.call('GET', key)
  if stored then d.number, d.count = struct.unpack('<dd', stored) end
  local today = math.floor(second / DAY_SECONDS)
  if today > d.number then
    d.number, d.count, d.changed = today, 0, true
  elseif today < d.number - 1 then -- the clock was set back
    d.number, d.changed = today, true
  end
  return d
end

-- Stores the count of a day if it has changed.
local function day_save(d)
  if d.changed then redis.call('SET', d.key, struct.pack('<dd', d.number, d.count), 'EXAT', (d.number + 2) * DAY_SECONDS) end
end

local function admit()
  if ARGV[1] == '' then return {'none'} end
  if ARGV[2] ~= '' and not key_works(KEYS[1], ARGV[2]) then return {'key'} end
  if ARGV[1] == 'check' then return {'none'} end
  local w, d = window_at(KEYS[2]), nil
  local wait, day_wait = window_wait(w, 1, tonumber(ARGV[3])), 0
  if ARGV[5] ~= '' then
    d = day_at(KEYS[4])
    if d.count >= tonumber(ARGV[5]) then day_wait = (d.number + 1) * DAY_SECONDS - second end
  end
  local decision = 'refused'
  if wait == 0 and day_wait == 0 then
    decision = 'admitted'
    window_add(w, 1)
    if d then d.count, d.changed = d.count + 1, true end
  end
  window_save(w)
  if decision == 'admitted' then count_usage(now, {REQUESTS_FIELD, 1}) end
  if not d then return {decision, w.total, window_reset(w), wait} end
  day_save(d)
  return {decision, w.total, window_reset(w), wait, d.count, (d.number + 1) * DAY_SECONDS, day_wait}
end

-- Reserves tokens in the account's window of tokens a minute, and returns the results of reserve. Without an admission, it
-- reserves nothing. Call it after every check that can refuse the request.
local function reserve_tokens(tokens)
  if ARGV[1] == '' then return {0, 0} end
  return reserve(KEYS[3], tokens, tonumber(ARGV[4]))
end

-- Admits the request and runs the operation. If it refuses the request, the operation does not run.
local function admitted(operation)
  local admission = admit()
  if admission[1] == 'key' or admission[1] == 'refused' then return {admission} end
  return {admission, operation({unpack(KEYS, 5)}, {unpack(ARGV, 6)})}
end
