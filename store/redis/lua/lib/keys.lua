-- This library maintains the two indices of an account's API keys in one mode: TAG:ki and TAG:kx (schema.go).
-- Defines: add_key, adopt_keys, active_keys, end_key, purge_keys.

-- Adds an API key to the indices. created and expires are in milliseconds; expires is '' for never.
local function add_key(id, created, expires)
  redis.call('ZADD', key_index_key(), int(created), id)
  redis.call('ZADD', key_ends_key(), expires ~= '' and expires or '+inf', id)
end

-- Records that an API key is revoked now. If the API key has expired before, the time of expiry stays.
local function end_key(id) redis.call('ZADD', key_ends_key(), 'LT', int(now), id) end

-- Moves up to n API keys from the list that earlier versions wrote to the indices, newest first. So the indices always have the
-- newest API keys. A revoked API key counts as revoked now, because earlier versions stored no time of revocation.
local function adopt_keys(n)
  for _, id in ipairs(redis.call('LPOP', key_list_key(), int(n)) or {}) do
    local k = redis.call('HMGET', key_key(id), 'created', 'expires', 'revoked')
    if k[1] then add_key(id, k[1], k[2]) end
    if k[3] then end_key(id) end
  end
end

-- Returns the number of active API keys. API keys that adopt_keys has not moved yet all count.
local function active_keys()
  return redis.call('ZCOUNT', key_ends_key(), '(' .. int(now), '+inf') + redis.call('LLEN', key_list_key())
end

-- Removes up to KEYS_PURGED_AT_ONCE records of API keys that ended ENDED_KEY_LIFETIME ago. If more than MAX_ENDED_KEYS API keys
-- have ended, it removes the oldest of them.
local function purge_keys()
  local excess = redis.call('ZCOUNT', key_ends_key(), '-inf', int(now)) - MAX_ENDED_KEYS
  local last = excess > 0 and now or now - ENDED_KEY_LIFETIME
  local n = excess > 0 and math.min(excess, KEYS_PURGED_AT_ONCE) or KEYS_PURGED_AT_ONCE
  local ids = redis.call('ZRANGE', key_ends_key(), '-inf', int(last), 'BYSCORE', 'LIMIT', 0, int(n))
  if #ids == 0 then return end
  local records = {}
  for i, id in ipairs(ids) do records[i] = key_key(id) end
  redis.call('UNLINK', unpack(records))
  redis.call('ZREM', key_index_key(), unpack(ids))
  redis.call('ZREM', key_ends_key(), unpack(ids))
end
