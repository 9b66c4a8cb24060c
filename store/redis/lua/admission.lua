-- Admits the request that an operation is carried out for, before the operation (design section 3, step 1). This text,
-- after usage.lua, stands around every operation that can carry an admission (script.go): the operation is a function
-- of KEYS and ARGV that begin after those of the admission.
--
-- KEYS[1] the key's hash · KEYS[2] window of requests · KEYS[3] window of tokens · KEYS[4] day of test keys
-- ARGV[1] what is to be done: '' nothing, 'check' the key must work, 'count' that, and the request is counted
-- ARGV[2] hash of the key's secret; '' is the declared key, which always works
-- ARGV[3] requests a minute · ARGV[4] tokens a minute · ARGV[5] requests a day, '' if the key is no test key
-- → {admission, what the operation returns}; admission is
--   {'none'} · {'key'} the key does not work, nothing was done ·
--   {'admitted' or 'refused', used, reset, wait, and for a test key the same of the day}; refused: nothing was done

-- Reports whether the key of that hash has a secret that works now.
local function key_works(key, secret)
  local k = redis.call('HMGET', key, 'secret', 'previous', 'until', 'expires')
  local function ahead(time) return not time or time == '' or now < tonumber(time) end
  if not ahead(k[4]) then return false end
  return k[1] == secret or k[2] == secret and ahead(k[3])
end

-- Returns the day of that key as it is now: {key, number, count, changed}.
local function day_at(key)
  local d = {key = key, number = 0, count = 0}
  local kept = redis.call('GET', key)
  if kept then d.number, d.count = struct.unpack('<dd', kept) end
  local today = math.floor(second / DAY)
  if today > d.number then
    d.number, d.count, d.changed = today, 0, true
  elseif today < d.number - 1 then -- the clock has been set back
    d.number, d.changed = today, true
  end
  return d
end

local function day_save(d)
  if d.changed then redis.call('SET', d.key, struct.pack('<dd', d.number, d.count), 'EXAT', (d.number + 2) * DAY) end
end

local function admit()
  if ARGV[1] == '' then return {'none'} end
  if ARGV[2] ~= '' and not key_works(KEYS[1], ARGV[2]) then return {'key'} end
  if ARGV[1] == 'check' then return {'none'} end
  local w, d = window_at(KEYS[2]), nil
  local wait, day_wait = window_wait(w, 1, tonumber(ARGV[3])), 0
  if ARGV[5] ~= '' then
    d = day_at(KEYS[4])
    if d.count >= tonumber(ARGV[5]) then day_wait = (d.number + 1) * DAY - second end
  end
  local said = 'refused'
  if wait == 0 and day_wait == 0 then
    said = 'admitted'
    window_add(w, 1)
    if d then d.count, d.changed = d.count + 1, true end
  end
  window_save(w)
  if said == 'admitted' then count(now, {REQUESTS, 1}) end
  if not d then return {said, w.total, window_reset(w), wait} end
  day_save(d)
  return {said, w.total, window_reset(w), wait, d.count, (d.number + 1) * DAY, day_wait}
end

-- Reserves tokens in the minute of the request's account, as reserve does; nothing where no request is the cause.
-- Call it last, when nothing else can refuse.
local function reserve_tokens(tokens)
  if ARGV[1] == '' then return {0, 0} end
  return reserve(KEYS[3], tokens, tonumber(ARGV[4]))
end

local function admitted(operation)
  local said = admit()
  if said[1] == 'key' or said[1] == 'refused' then return {said} end
  return {said, operation({unpack(KEYS, 5)}, {unpack(ARGV, 6)})}
end
