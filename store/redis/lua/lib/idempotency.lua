-- Idempotency keys: they identify a repeated request (conversation.Idempotency).
-- Defines: recall, remember.

-- Returns what the request with that key created, as a table with session, asked and message. Returns nil if the key is '' or
-- unknown, or its session is gone, and 'conflict' if another request used the key.
local function recall(key, digest)
  if key == '' then return nil end
  local known = redis.call('HMGET', request_key(key), 'digest', 'session', 'asked', 'message')
  local s = known[2] and session_at(known[2])
  if not s then return nil end
  if known[1] ~= digest then return 'conflict' end
  return {session = s, asked = known[3], message = known[4]}
end

-- Stores what a request created: the session or, if a turn is live, that turn.
local function remember(s, key, digest)
  if key == '' then return end
  redis.call('HSET', request_key(key), 'digest', digest, 'session', s.id, 'asked', s.asked or '', 'message', s.live or '')
  redis.call('PEXPIREAT', request_key(key), int(s.expires)) -- at most 24 hours ahead
end
