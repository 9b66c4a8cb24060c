-- This library reads and writes sessions. A session is a Lua table with the fields of the session's hash (schema.go) and the
-- field id. Numeric fields are numbers. A field that is not stored is nil.
-- Defines: session_at, session_save, session_view, VIEW, prune.

-- The fields that session_view returns, in the order in which readSession (session.go) reads them.
local VIEW = {'user', 'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'meta', 'window', 'compress',
  'policy', 'htokens', 'head', 'cleared', 'live', 'asked', 'fence'}
local FIELDS = {'previous', 'node', 'waiter', 'stop', 'queue', 'granted', 'grantedAt', 'bytes', unpack(VIEW)}
local NUMBERS = {'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'window', 'htokens', 'fence', 'grantedAt',
  'bytes'}

-- Returns a session, or nil if it does not exist or has expired.
local function session_at(id)
  local values, s = redis.call('HMGET', session_key(id), unpack(FIELDS)), {id = id}
  for i, field in ipairs(FIELDS) do s[field] = values[i] or nil end
  if not s.user then return nil end
  for _, field in ipairs(NUMBERS) do s[field] = tonumber(s[field]) end
  if s.expires <= now then return nil end
  return s
end

-- Stores the named fields of a session. It removes the stored field if the value in s is nil.
local function session_save(s, ...)
  local set, gone = {}, {}
  for _, field in ipairs({...}) do
    local value = s[field]
    if value == nil then
      gone[#gone + 1] = field
    else
      set[#set + 1] = field
      set[#set + 1] = type(value) == 'number' and int(value) or value
    end
  end
  if #set > 0 then redis.call('HSET', session_key(s.id), unpack(set)) end
  if #gone > 0 then redis.call('HDEL', session_key(s.id), unpack(gone)) end
end

-- Returns a session for Go: the values of the fields in VIEW, as texts. A field that is not stored gives ''.
local function session_view(s)
  local view = {}
  for i, field in ipairs(VIEW) do
    local value = s[field]
    view[i] = type(value) == 'number' and int(value) or value or ''
  end
  return view
end

-- Removes up to PRUNED_AT_ONCE expired sessions from the indices of sessions.
local function prune()
  for _, due in ipairs(redis.call('ZRANGEBYSCORE', expiry_key(), '-inf', int(now), 'LIMIT', 0, PRUNED_AT_ONCE)) do
    local id, user = string.match(due, '^([^:]*):(.*)$')
    redis.call('ZREM', sessions_key(), id)
    redis.call('ZREM', user_sessions_key(user), id)
    redis.call('ZREM', expiry_key(), due)
  end
end
