-- This library admits a request before the operation, in the same script: it checks the API key and counts the request. script.go
-- turns the operation into a function. The function gets the KEYS and ARGV that follow those listed here.
-- Defines: admitted, reserve_tokens.
--
-- If the tier limits users to less than the account, a request also counts in the windows of its user.
--
-- If ARGV[1] is '', the request was admitted before, or there is no request. Then KEYS and ARGV[2…] are those of the operation, and
-- the result is that of the operation. Else:
-- KEYS[1] record of the API key
-- ARGV[1] 'check' check the API key; 'count' check the API key, and count the request
-- ARGV[2] hash of the secret; '' for the API key from the configuration, which always works
-- ARGV[3] limit of requests a minute · ARGV[4] limit of tokens a minute · ARGV[5] limit of requests a day; '' if not a test key
-- ARGV[6] '' if the tier does not limit users to less than the account. Else four values, separated by spaces: limit of requests
--   a minute for each user, limit of tokens a minute for each user ('' if the account's limit suffices), the user for whom the
--   request counts ('' if not known), key of a session of that user ('' for none)
-- Result: {admission, result of the operation}. admission is one of
--   'works'          the API key works; no request was counted
--   'key'            the API key does not work; the operation did not run
--   packed doubles   used, reset and wait of the limit of requests a minute. For a test key, three figures of the limit of requests
--                    a day follow. If the request counts for a user, three figures of that user's limit of requests a minute
--                    follow. If one wait is not 0, the request was refused, and the operation did not run.

-- Reports whether a secret works for an API key now. key is the name of the API key's record, secret the hash of the secret.
local function key_works(key, secret)
  local newest, previous, ends, expires = unpack(redis.call('HMGET', key, 'secret', 'previous', 'until', 'expires'))
  if expires and expires ~= '' and now >= tonumber(expires) then return false end
  return newest == secret or previous == secret and (not ends or ends == '' or now < tonumber(ends))
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

-- Checks the API key and counts the request. Returns the admission, and whether the operation may run.
local function admit()
  if ARGV[2] ~= '' and not key_works(KEYS[1], ARGV[2]) then return 'key', false end
  if ARGV[1] == 'check' then return 'works', true end
  local w, d = window_at(requests_key()), nil
  local wait, day_wait = window_wait(w, 1, tonumber(ARGV[3])), 0
  if ARGV[5] ~= '' then
    d = day_at(day_key())
    if d.count >= tonumber(ARGV[5]) then day_wait = (d.number + 1) * DAY_SECONDS - second end
  end
  local u, user_wait = nil, 0
  if ARGV[6] ~= '' then
    local limit, user, session = string.match(ARGV[6], '^(%d*) %d* (%S*) (%S*)$')
    if session ~= '' then user = redis.call('HGET', session, 'user') end
    if limit ~= '' and user and user ~= '' then
      u = window_at(user_requests_key(user))
      user_wait = window_wait(u, 1, tonumber(limit))
    end
  end
  local fits = wait == 0 and day_wait == 0 and user_wait == 0
  if fits then
    window_add(w, 1)
    if u then window_add(u, 1) end
    if d then d.count, d.changed = d.count + 1, true end
    count_usage(now, {REQUESTS_FIELD, '1'})
  end
  window_save(w)
  local admission = struct.pack('<ddd', w.total, window_reset(w), wait)
  if d then
    day_save(d)
    admission = admission .. struct.pack('<ddd', d.count, (d.number + 1) * DAY_SECONDS, day_wait)
  end
  if u then
    window_save(u)
    admission = admission .. struct.pack('<ddd', u.total, window_reset(u), user_wait)
  end
  return admission, fits
end

-- Reserves tokens in the window of tokens a minute of the account and, if users have a limit, also in the window of the user.
-- Returns the two results of reserve and, if it has reserved tokens of the user, their reservation. If the user's limit refuses,
-- the second result has a fourth element, 'user'. Without an admission, it reserves nothing. Call it after every check that can
-- refuse the request.
local function reserve_tokens(tokens, user)
  if ARGV[1] == '' then return {0, 0} end
  local limit = string.match(ARGV[6], '^%d* (%d+)')
  if not limit or not user then return reserve(tokens_key(), tokens, tonumber(ARGV[4])) end
  local key = user_tokens_key(user)
  local of_user, refused = reserve(key, tokens, tonumber(limit))
  if refused then return nil, {refused[1], refused[2], refused[3], 'user'} end
  local of_account
  of_account, refused = reserve(tokens_key(), tokens, tonumber(ARGV[4]))
  if refused then -- subtract the user's tokens again
    local w = window_at(key)
    window_set(w, of_user[1] % WINDOW_SPAN, window_count(w, of_user[1] % WINDOW_SPAN) - of_user[2])
    window_save(w)
  end
  return of_account, refused, of_user
end

-- Admits the request and runs the operation. If it refuses the request, the operation does not run.
local function admitted(operation)
  if ARGV[1] == '' then return operation(KEYS, {unpack(ARGV, 2)}) end
  local admission, runs = admit()
  if not runs then return {admission} end
  return {admission, operation({unpack(KEYS, 2)}, {unpack(ARGV, 7)})}
end
