-- What beginning a turn and resuming one have in common. This text follows queue.lua.

local MESSAGE_OVERHEAD, PROMPT_OVERHEAD = 4, 3 -- those of conversation/window

-- The arithmetic of conversation/window: room for the reply, budget of the messages of a prompt.
local function room(window) return math.min(math.floor(window / 4), 4096) end
local function budget(window) return window - room(window) - PROMPT_OVERHEAD end

local INDEX_LIMIT = 2000 -- conversation.IndexLimit

-- Returns the newest messages, newest first, from that end of a range on: as many as the budget holds, and the one that no
-- longer fits.
local function history(s, before)
  local left, messages, chunk = budget(s.window), {}, 16
  while true do
    local members = redis.call('ZRANGE', messages_key(s.id), before, '-', 'BYLEX', 'REV', 'LIMIT', 0, chunk)
    for _, member in ipairs(members) do
      if left < 0 then return messages end
      messages[#messages + 1] = member
      left = left - member_tokens(member)
    end
    if #members < chunk then return messages end
    before, chunk = '(' .. string.sub(members[#members], 1, 20), 128
  end
end

-- Returns the vectors of indexed messages, in their order, '' for none; nothing at all if the session has none. Of 1,000, 1.5 KB
-- each, the copies in and out of Lua take the server 5 ms, and all else 1.5; a command of its own would be another trip.
local function vectors_of(s, indexed)
  if s.policy ~= 'semantic' or #indexed == 0 or redis.call('EXISTS', vectors_key(s.id)) == 0 then return {} end
  local ids = {}
  for i, member in ipairs(indexed) do ids[i] = string.sub(member, 1, 20) end
  local vectors = redis.call('HMGET', vectors_key(s.id), unpack(ids))
  for i = 1, #ids do vectors[i] = vectors[i] or '' end
  return vectors
end

-- Returns what a window is planned from, as conversation.Context has it, in front of that end of a range: {messages, newest
-- first}, {indexed, newest first}, the vectors of these (vectors_of), the summary's last message, its record. tokens are those of
-- the history and the new message.
local function context_view(s, before, tokens)
  local indexed, summary = {}, redis.call('HMGET', summary_key(s.id), 'last', 'record')
  if tokens > budget(s.window) and s.compress == '1' and s.policy ~= 'fifo' then
    indexed = redis.call('ZRANGE', index_key(s.id), before, '-', 'BYLEX', 'REV', 'LIMIT', 0, INDEX_LIMIT)
  end
  return history(s, before), indexed, vectors_of(s, indexed), summary[1] or '', summary[2] or ''
end

-- Returns the live turn of a session as BeginTurn does.
local function turn_view(s) return {'begun', session_view(s), s.previous or '', context_view(s, '(' .. s.asked, s.htokens)} end
