-- This library stores the messages of a session, and the index from which a window chooses messages.
-- Defines: member_of, member_tokens, without_metadata, message_add, message_at, message_skip, live_member, index_add, is_system.
--
-- A message is a member of its session's sorted set: id (ID_LENGTH bytes), NUL, tokens in a prompt (32 bits), createdAt (64
-- bits), record. Only Go and without_metadata read the record (record.go). The live reply is not in the set. live_member composes
-- the member of the live reply from the session and the journal: a 0 byte and the reply's text replace the record.

local function member_of(id, tokens, created, record) return id .. '\0' .. struct.pack('<I4I8', tokens, created) .. record end

local function member_tokens(member) return (struct.unpack('<I4', member, ID_LENGTH + 2)) end

-- Returns the position after a text in a record. at is the position of the text's length: 7 bits in each byte, the lowest first.
local function after_text(member, at)
  local length, unit = string.byte(member, at) or 0, 1
  if length < UVARINT_MORE then return at + 1 + length end
  length = 0
  while true do
    local byte = string.byte(member, at) or 0
    at, length = at + 1, length + byte % UVARINT_MORE * unit
    if byte < UVARINT_MORE then return at + length end
    unit = unit * UVARINT_MORE
  end
end

-- Returns a member with an empty metadata in its record. A record begins with its version, role, status, content and metadata
-- (store/record). Records of other versions stay unchanged.
local function without_metadata(member)
  local at = HEAD_LENGTH + 1
  if string.byte(member, at) ~= RECORD_VERSION then return member end
  at = after_text(member, after_text(member, after_text(member, at + 1)))
  if string.byte(member, at) == 0 then return member end
  return string.sub(member, 1, at - 1) .. '\0' .. string.sub(member, after_text(member, at))
end

-- Adds a message to a session. The new id must sort after the ids of the session's other messages.
local function message_add(s, id, tokens, created, record)
  redis.call('ZADD', messages_key(s.id), 0, member_of(id, tokens, created, record))
end

-- Returns the live reply of a session in the format of a member.
local function live_member(s)
  return member_of(s.live, 0, s.last, '\0' .. (redis.call('GET', journal_key(s.id, s.fence)) or ''))
end

-- Returns a message in the format of a member, or nil if the session has no such message. The message may be the live reply.
local function message_at(s, id)
  if s.live and s.live == id then return live_member(s) end
  return redis.call('ZRANGE', messages_key(s.id), '[' .. id .. '\0', '(' .. id .. '\1', 'BYLEX')[1]
end

-- Sets the tokens that a message takes in a prompt to 0, because no later prompt has the message. Returns the tokens before. The
-- record stays unchanged.
local function message_skip(s, id)
  local member = message_at(s, id)
  if not member then return 0 end
  redis.call('ZREM', messages_key(s.id), member)
  redis.call('ZADD', messages_key(s.id), 0, string.sub(member, 1, ID_LENGTH + 1) .. struct.pack('<I4', 0) .. string.sub(member, ID_LENGTH + 6))
  return member_tokens(member)
end

-- Reports whether a record of the index is that of a system message. It begins with its version, the length of the role, and the
-- role; only Go reads the rest (conversation.Indexed).
local function is_system(record) return string.sub(record, 3, 2 + #ROLE_SYSTEM) == ROLE_SYSTEM end

-- Adds a message to the index of its session. If the session's policy is fifo, the index has only system messages. The terms follow
-- the record only if the policy is semantic, because other policies do not need them.
local function index_add(s, id, record, terms)
  if s.policy == POLICY_FIFO and not is_system(record) then return end
  redis.call('ZADD', index_key(s.id), 0, id .. '\0' .. record .. (s.policy == POLICY_SEMANTIC and terms or ''))
  redis.call('PEXPIREAT', index_key(s.id), int(s.expires))
end
