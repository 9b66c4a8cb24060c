-- This library stores idempotency keys, which identify repeated requests (conversation.Idempotency).
-- Defines: recall, remember.

-- Looks up an idempotency key. It returns a table with what an earlier request with this key and digest created: session, asked
-- and message. It returns nil if the key is '' or unknown, or if the session is gone. It returns 'conflict' if a request with
-- another digest used the key.
local function recall(key, digest)
  if key == '' then return nil end
  local known = redis.call('HMGET', request_key(key), 'digest', 'session', 'asked', 'message')
  local s = known[2] and session_at(known[2])
  if not s then return nil end
  if known[1] ~= digest then return 'conflict' end
  return {session = s, asked = known[3], message = known[4]}
end

-- Stores what a request with an idempotency key created: the session and, if a turn is live, the turn.
local function remember(s, key, digest)
  if key == '' then return end
  redis.call('HSET', request_key(key), 'digest', digest, 'session', s.id, 'asked', s.asked or '', 'message', s.live or '')
  redis.call('PEXPIREAT', request_key(key), int(s.expires)) -- at most 24 hours ahead
end
