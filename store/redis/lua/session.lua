-- Sessions, their messages and turns: what the operations on them have in common. This text stands in front of each of
-- them, after usage.lua (script.go); schema.go has the keys.
--
-- A session is read into a table: its fields, the numbers among them as numbers, and id. What is not there is nil.

-- What is said of a session to callers, in this order: session.go reads it.
local VIEW = {'user', 'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'meta', 'window', 'compress',
  'policy', 'htokens', 'head', 'cleared', 'live', 'asked', 'fence'}
local FIELDS = {'previous', 'node', 'waiter', 'stop', 'queue', 'granted', 'grantedAt', unpack(VIEW)}
local NUMBERS = {'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'window', 'htokens', 'fence', 'grantedAt'}

local function session_key(id) return TAG .. ':s:' .. id end
local function messages_key(id) return TAG .. ':m:' .. id end
local function index_key(id) return TAG .. ':w:' .. id end
local function summary_key(id) return TAG .. ':f:' .. id end
local function vectors_key(id) return TAG .. ':e:' .. id end
local function journal_key(id, fence) return TAG .. ':j:' .. id .. ':' .. int(fence) end
local function turn_key(id) return TAG .. ':r:' .. id end

-- Returns the session of that id, nil if there is none or it has expired.
local function session_at(id)
  local values, s = redis.call('HMGET', session_key(id), unpack(FIELDS)), {id = id}
  for i, field in ipairs(FIELDS) do s[field] = values[i] or nil end
  if not s.user then return nil end
  for _, field in ipairs(NUMBERS) do s[field] = tonumber(s[field]) end
  if s.expires <= now then return nil end
  return s
end

-- Writes those fields of a session; one that is nil is removed.
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

local function session_view(s)
  local view = {}
  for i, field in ipairs(VIEW) do
    local value = s[field]
    view[i] = type(value) == 'number' and int(value) or value or ''
  end
  return view
end

-- Removes up to 100 sessions that have expired from the indices.
local function prune()
  for _, due in ipairs(redis.call('ZRANGEBYSCORE', TAG .. ':x', '-inf', int(now), 'LIMIT', 0, 100)) do
    local id, user = string.match(due, '^([^:]*):(.*)$')
    redis.call('ZREM', TAG .. ':i', id)
    redis.call('ZREM', TAG .. ':u:' .. user, id)
    redis.call('ZREM', TAG .. ':x', due)
  end
end

-- Ids (conversation/id.go): the clock's 7 digits to the base of 62, and 9 random characters, which come as arguments.

local DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

-- Returns an id of the moment at that sorts after last, which may be nil.
local function new_id(prefix, at, last, random)
  if last then
    local clock = 0
    for i = #prefix + 1, #prefix + 7 do clock = clock * 62 + string.find(DIGITS, string.sub(last, i, i), 1, true) - 1 end
    at = math.max(at, clock + 1)
  end
  local text = ''
  for _ = 1, 7 do
    local digit = at % 62 + 1
    text, at = string.sub(DIGITS, digit, digit) .. text, math.floor(at / 62)
  end
  return prefix .. text .. random
end

-- A message is a member of its session's set: id (20), NUL, tokens in a prompt (32 bits), createdAt (64 bits), record. The
-- record is Go's own; it begins with 1, or with 0 for a reply that is streaming, which is no member: what is journalled of it
-- follows.

local function member_of(id, tokens, created, record) return id .. '\0' .. struct.pack('<I4I8', tokens, created) .. record end

local function member_tokens(member) return (struct.unpack('<I4', member, 22)) end

-- Adds a message, above all others.
local function message_add(s, id, tokens, created, record)
  redis.call('ZADD', messages_key(s.id), 0, member_of(id, tokens, created, record))
end

-- Indexes a message, where the session's policy chooses. The record is Go's own (conversation.Indexed), and ends with the terms,
-- which only semantic needs.
local function index_add(s, id, record, terms)
  if s.policy == 'fifo' then return end
  redis.call('ZADD', index_key(s.id), 0, id .. '\0' .. record .. (s.policy == 'semantic' and terms or ''))
  redis.call('PEXPIREAT', index_key(s.id), int(s.expires))
end

-- Returns the reply that is streaming, as a member would be.
local function live_member(s)
  return member_of(s.live, 0, s.last, '\0' .. (redis.call('GET', journal_key(s.id, s.fence)) or ''))
end

-- Returns the message of that id, nil if there is none.
local function message_at(s, id)
  if s.live and s.live == id then return live_member(s) end
  return redis.call('ZRANGE', messages_key(s.id), '[' .. id .. '\0', '(' .. id .. '\1', 'BYLEX')[1]
end

-- Pokes a node about a session: it has changed.
local function poke_node(node, id) redis.call('PUBLISH', 'inbox:' .. node, id) end

-- Pokes the nodes that watch a session, and more that are named, each once. A node that is '' or nil is none.
local function poke(id, ...)
  local poked = {['']= true}
  local watchers = redis.call('HGETALL', TAG .. ':v:' .. id)
  for i = 1, #watchers, 2 do
    if tonumber(watchers[i + 1]) > now then
      poke_node(watchers[i], id)
      poked[watchers[i]] = true
    end
  end
  for i = 1, select('#', ...) do
    local node = select(i, ...)
    if node and not poked[node] then
      poke_node(node, id)
      poked[node] = true
    end
  end
end

-- Notes that the live reply is to stop, and why, and tells its node. A clearing outweighs a cancel.
local function stop(s, why)
  if s.stop ~= why and s.stop ~= 'cleared' then
    s.stop = why
    session_save(s, 'stop')
  end
  poke_node(s.node, s.id)
end

-- What settles a turn stands beside its session, and outlives it by an hour: reply, fence, second and tokens of the
-- reservation, tokens of the prompt as they are estimated, node and waiter. A session has one at most: that of its live turn,
-- or of the turn that was live when it went. So whoever ends a dead node's turns finds it by what the node's live set says.

local function turn_keep(s, second, tokens, estimate)
  redis.call('SET', turn_key(s.id), table.concat({s.live, int(s.fence), int(second), int(tokens), int(estimate), s.node, s.waiter}, ' '),
    'PXAT', int(s.expires + 3600000))
end

-- Returns reply, fence, second, tokens, estimate, node and waiter of the turn that is not settled; nil if there is none.
local function turn_kept(id)
  local kept = redis.call('GET', turn_key(id))
  if not kept then return nil end
  local reply, fence, at, tokens, estimate, node, waiter = string.match(kept, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%S*) (.*)$')
  return {reply = reply, fence = tonumber(fence), second = tonumber(at), tokens = tonumber(tokens), estimate = tonumber(estimate),
    node = node, waiter = waiter}
end

-- Settles a turn, once: its reservation becomes what it used, and its counts are added. Returns whether that was to be done.
local function turn_settle(id, fence, reply, used, counts)
  local kept = turn_kept(id)
  if not kept or kept.reply ~= reply or kept.fence ~= fence then return false end
  redis.call('DEL', turn_key(id))
  settle(TAG .. ':tokens', kept.second, kept.tokens, used)
  count(now, counts)
  return true
end

-- Empties the journal of a turn that is over. A node that slept may still write: the key must be there, with an expiry.
local function journal_end(id, fence) redis.call('SET', journal_key(id, fence), '', 'PX', 300000) end

-- Requests that are recognised when they are repeated (conversation.Idempotency).

local function request_key(key) return TAG .. ':idem:' .. key end

-- Returns what the request of that key did: {session, asked, message}; nil if it is unknown, 'conflict' if another one has
-- its key.
local function recall(key, digest)
  if key == '' then return nil end
  local known = redis.call('HMGET', request_key(key), 'digest', 'session', 'asked', 'message')
  local s = known[2] and session_at(known[2])
  if not s then return nil end
  if known[1] ~= digest then return 'conflict' end
  return {session = s, asked = known[3], message = known[4]}
end

-- Notes what a request has done: it made the session, or began the turn that is live.
local function remember(s, key, digest)
  if key == '' then return end
  redis.call('HSET', request_key(key), 'digest', digest, 'session', s.id, 'asked', s.asked or '', 'message', s.live or '')
  redis.call('PEXPIREAT', request_key(key), int(s.expires)) -- which is never more than 24 h ahead
end
