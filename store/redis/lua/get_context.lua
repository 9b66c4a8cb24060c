-- Returns the context from which BeginTurn would plan the prompt of a new message. If the context has vectors, the caller embeds
-- the message, so the script reserves the message's tokens in the limit of tokens a minute. It changes nothing else.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] tokens of the new message
-- Result: {prompt_view, the live reply (lib/messages.lua) or '', results of context_view} · 'gone' no such session
--   {'tokens', …} as in begin_turn.lua: a limit of tokens a minute is exceeded
local s = session_at(ARGV[1])
if not s then return 'gone' end
local tokens = tonumber(ARGV[2])
local size = s.htokens + tokens + MESSAGE_OVERHEAD
if s.live and s.policy == POLICY_PRIORITY then size = s.window end -- the live reply may fill the window
local messages, indexed, vectors, last, summary = context_view(s, '+', size)
if #vectors > 0 then
  local reserved, refused = reserve_tokens(tokens, s.user)
  if not reserved then return {'tokens', refused} end
end
return {prompt_view(s), s.live and live_member(s) or '', messages, indexed, vectors, last, summary}
