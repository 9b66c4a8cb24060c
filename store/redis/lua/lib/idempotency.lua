-- This library stores idempotency keys, which identify repeated requests (conversation.Idempotency).
-- Defines: recall, remember, forget_requests.

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

-- Stores what a request with an idempotency key created: the session and, if a turn is live, the turn. It adds the key to the
-- session's list of keys.
local function remember(s, key, digest)
  if key == '' then return end
  redis.call('HSET', request_key(key), 'digest', digest, 'session', s.id, 'asked', s.asked or '', 'message', s.live or '')
  redis.call('PEXPIREAT', request_key(key), int(s.expires)) -- at most 24 hours ahead
  if redis.call('RPUSH', session_requests_key(s.id), key) == 1 then
    redis.call('PEXPIREAT', session_requests_key(s.id), int(s.expires))
  end
end

-- Removes the records of up to REQUESTS_FORGOTTEN_AT_ONCE idempotency keys of a session that is gone. Returns 1 if it must be
-- called again, else 0. A record stays if a later request has used the same key for another session.
local function forget_requests(id)
  local keys = redis.call('LPOP', session_requests_key(id), REQUESTS_FORGOTTEN_AT_ONCE) or {}
  for _, key in ipairs(keys) do
    if redis.call('HGET', request_key(key), 'session') == id then redis.call('UNLINK', request_key(key)) end
  end
  return #keys < REQUESTS_FORGOTTEN_AT_ONCE and 0 or redis.call('EXISTS', session_requests_key(id))
end
