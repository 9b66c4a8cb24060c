-- This library reads the context of a turn: the newest messages that fit the window, the index, the vectors and the summary. Go
-- plans the prompt from the context.
-- Defines: reply_room, overhead, budget, prompt_view, context_view, turn_view.

-- reply_room returns the tokens of a session's window that are reserved for the reply. overhead returns the tokens of a prompt
-- that are not tokens of its messages. budget returns the tokens that are left for the messages. They do the same as the methods
-- of window.Size in Go.
local function reply_room(s) return math.min(math.floor(s.window / REPLY_SHARE), MAX_REPLY_ROOM, s.reply or MAX_REPLY_ROOM) end
local function overhead(s) return PROMPT_OVERHEAD + (s.fixed or 0) end
local function budget(s) return s.window - reply_room(s) - overhead(s) end

-- Returns the view of a session from which Go builds a prompt.
local function prompt_view(s) return s.fixed and settings_view(s) or session_view(s) end

-- Returns messages of a session, newest first: all that fit the budget and HISTORY_BYTES, and one more. A message that no prompt has
-- takes MESSAGE_OVERHEAD of the budget, so that a session with many failed replies is not read as a whole. A prompt contains no
-- metadata, so history removes the metadata of members with more than MEMBER_SENT_WHOLE bytes, and Go ignores other metadata.
-- before limits the range for ZRANGE BYLEX: it is '+' for all messages, or '(' and the id of the first message that is too
-- new.
local function history(s, before)
  local left, bytes, messages, chunk = budget(s), HISTORY_BYTES, {}, HISTORY_FIRST_READ
  while true do
    local members = redis.call('ZRANGE', messages_key(s.id), before, '-', 'BYLEX', 'REV', 'LIMIT', 0, chunk)
    for i = 1, #members do
      if left < 0 or bytes < 0 then return messages end
      local member = members[i]
      left, bytes = left - math.max(member_tokens(member), MESSAGE_OVERHEAD), bytes - (#member - HEAD_LENGTH)
      messages[#messages + 1] = #member > MEMBER_SENT_WHOLE and without_metadata(member) or member
    end
    if #members < chunk then return messages end
    before, chunk = '(' .. string.sub(members[#members], 1, ID_LENGTH), HISTORY_READ
  end
end

-- Returns the vectors of indexed messages, in the order of the messages. A message without a vector gets ''. If the session has
-- no vectors, the list is empty. Copying 1,000 vectors of 1.5 KB into and out of Lua takes the server 5 ms; the rest of the
-- script takes 1.5 ms. A separate command would need no copy, but another round trip.
local function vectors_of(s, indexed)
  if s.policy ~= POLICY_SEMANTIC or #indexed == 0 or redis.call('EXISTS', vectors_key(s.id)) == 0 then return {} end
  local ids = {}
  for i, member in ipairs(indexed) do ids[i] = string.sub(member, 1, ID_LENGTH) end
  local vectors = redis.call('HMGET', vectors_key(s.id), unpack(ids))
  for i = 1, #ids do vectors[i] = vectors[i] or '' end
  return vectors
end

local function packed_texts(list) return #list > 0 and cmsgpack.pack(list) or '' end

-- Returns five parts of a conversation.Context: the messages, newest first; the indexed messages, newest first; the vectors of
-- the indexed messages; the id of the last message in the summary; the summary's record. The first three parts are lists in
-- MessagePack, because Go allocates memory for each element of any other list; '' is an empty list. before is a limit as in
-- history. tokens is the size of the history with the new message. The second and third part are empty if tokens fits the
-- budget, or if compression is disabled.
local function context_view(s, before, tokens)
  local indexed, summary = {}, redis.call('HMGET', summary_key(s.id), 'last', 'record')
  if tokens > budget(s) and s.compress == '1' then
    indexed = redis.call('ZRANGE', index_key(s.id), before, '-', 'BYLEX', 'REV', 'LIMIT', 0, INDEX_LIMIT)
  end
  return packed_texts(history(s, before)), packed_texts(indexed), packed_texts(vectors_of(s, indexed)), summary[1] or '', summary[2] or ''
end

-- Returns the live turn of a session, as {'begun', prompt_view, head before the turn, milliseconds until the session and the
-- journal of the turn expire, results of context_view}.
local function turn_view(s)
  return {'begun', prompt_view(s), s.previous or '', s.expires - now, context_view(s, '(' .. s.asked, s.htokens)}
end
