-- This library reads and writes sessions. A session is a Lua table with the fields of the session's hash (schema.go) and the
-- field id. Numeric fields are numbers. A field that is not stored is nil.
-- Defines: session_at, session_save, session_view, settings_save, settings_view, settings_bytes, prune.
--
-- These functions run in most scripts. So they name the fields one by one: a loop over a list of the fields takes twice as long.

-- Returns a session, or nil if it does not exist or has expired.
local function session_at(id)
  local user, created, expires, last, count, prompt, completion, total, meta, window, compress, policy, htokens, head, cleared, live,
    asked, fence, previous, node, waiter, stop, queue, granted, grantedAt, bytes, fixed, reply = unpack(redis.call('HMGET', session_key(id),
    'user', 'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'meta', 'window', 'compress', 'policy', 'htokens',
    'head', 'cleared', 'live', 'asked', 'fence', 'previous', 'node', 'waiter', 'stop', 'queue', 'granted', 'grantedAt', 'bytes', 'fixed',
    'reply'))
  expires = tonumber(expires)
  if not user or expires <= now then return nil end
  return {
    id = id, user = user, created = tonumber(created), expires = expires, last = tonumber(last), count = tonumber(count),
    prompt = tonumber(prompt), completion = tonumber(completion), total = tonumber(total), meta = meta or nil,
    window = tonumber(window), compress = compress, policy = policy, htokens = tonumber(htokens), head = head or nil,
    cleared = cleared or nil, live = live or nil, asked = asked or nil, fence = tonumber(fence), previous = previous or nil,
    node = node or nil, waiter = waiter or nil, stop = stop or nil, queue = queue or nil, granted = granted or nil,
    grantedAt = tonumber(grantedAt), bytes = tonumber(bytes), fixed = tonumber(fixed), reply = tonumber(reply),
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

-- Returns a session for Go: the fields in the order in which readSession (session.go) reads them. A field that is not stored
-- gives ''.
local function session_view(s)
  return {
    s.user, s.created, s.expires, s.last, s.count, s.prompt, s.completion, s.total, s.meta or '', s.window, s.compress, s.policy,
    s.htokens, s.head or '', s.cleared or '', s.live or '', s.asked or '', s.fence,
  }
end

-- Sets and stores the size of the instructions in a prompt, the instructions, the record of the model's configuration, and the
-- limit of a reply. '' and '0' mean none.
local function settings_save(s, fixed, instructions, model, reply)
  s.fixed, s.reply = tonumber(fixed), reply ~= '0' and tonumber(reply) or nil
  s.instr, s.model = instructions ~= '' and instructions or nil, model ~= '' and model or nil
  session_save(s, 'fixed', 'reply', 'instr', 'model')
end

-- Returns session_view with four more fields: the size of the instructions in a prompt, the instructions, the record of the
-- model's configuration, and the number of changes of the settings. Only operations that need them call it, because the
-- instructions may have 40 KB.
local function settings_view(s)
  local view, more = session_view(s), redis.call('HMGET', session_key(s.id), 'instr', 'model', 'rev')
  local n = #view
  view[n + 1], view[n + 2], view[n + 3], view[n + 4] = s.fixed or 0, more[1] or '', more[2] or '', more[3] or 0
  return view
end

-- Returns the number of bytes that a session counts in the quota storedBytes, without its messages.
local function settings_bytes(s) return #(s.meta or '') + redis.call('HSTRLEN', session_key(s.id), 'instr') end

-- Removes up to PRUNED_AT_ONCE expired sessions from the indices of sessions.
local function prune()
  for _, due in ipairs(redis.call('ZRANGEBYSCORE', expiry_key(), '-inf', int(now), 'LIMIT', 0, PRUNED_AT_ONCE)) do
    local id, user = string.match(due, '^([^:]*):(.*)$')
    redis.call('ZREM', sessions_key(), id)
    redis.call('ZREM', user_sessions_key(user), id)
    redis.call('ZREM', expiry_key(), due)
  end
end
