-- This library reads and writes sessions. A session is a Lua table with the fields of the session's hash (schema.go) and the
-- field id. Numeric fields are numbers. A field that is not stored is nil.
-- Defines: session_at, session_save, session_view, prune.
--
-- These functions run in most scripts. So they name the fields one by one: a loop over a list of the fields takes twice as long.

-- Returns a session, or nil if it does not exist or has expired.
local function session_at(id)
  local user, created, expires, last, count, prompt, completion, total, meta, window, compress, policy, htokens, head, cleared, live,
    asked, fence, previous, node, waiter, stop, queue, granted, grantedAt, bytes = unpack(redis.call('HMGET', session_key(id),
    'user', 'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'meta', 'window', 'compress', 'policy', 'htokens',
    'head', 'cleared', 'live', 'asked', 'fence', 'previous', 'node', 'waiter', 'stop', 'queue', 'granted', 'grantedAt', 'bytes'))
  expires = tonumber(expires)
  if not user or expires <= now then return nil end
  return {
    id = id, user = user, created = tonumber(created), expires = expires, last = tonumber(last), count = tonumber(count),
    prompt = tonumber(prompt), completion = tonumber(completion), total = tonumber(total), meta = meta or nil,
    window = tonumber(window), compress = compress, policy = policy, htokens = tonumber(htokens), head = head or nil,
    cleared = cleared or nil, live = live or nil, asked = asked or nil, fence = tonumber(fence), previous = previous or nil,
    node = node or nil, waiter = waiter or nil, stop = stop or nil, queue = queue or nil, granted = granted or nil,
    grantedAt = tonumber(grantedAt), bytes = tonumber(bytes),
  }
end

-- Stores the named fields of a session. It removes the stored field if the value in s is nil.
local function session_save(s, ...)
  local key, set, gone, n = session_key(s.id), {}, {}, 0
  for _, field in ipairs({...}) do
    local value = s[field]
    if value == nil then
      gone[#gone + 1] = field
    else
      n = n + 2
      set[n - 1], set[n] = field, type(value) == 'number' and int(value) or value
    end
  end
  if n > 0 then redis.call('HSET', key, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
end

-- Returns a session for Go as one string, which costs less than a list: numbers (doubles), then texts, each after its length (32
-- bits), in the order in which readSession (session.go) reads them. A text that is not stored gives ''.
local function session_view(s)
  local meta, head, cleared, live, asked = s.meta or '', s.head or '', s.cleared or '', s.live or '', s.asked or ''
  return struct.pack('<dddddddddddI4c0I4c0I4c0I4c0I4c0I4c0I4c0',
    s.created, s.expires, s.last, s.count, s.prompt, s.completion, s.total, s.window, s.htokens, s.fence, s.compress == '1' and 1 or 0,
    #s.user, s.user, #meta, meta, #s.policy, s.policy, #head, head, #cleared, cleared, #live, live, #asked, asked)
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
