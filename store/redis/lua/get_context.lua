-- Returns the context from which BeginTurn would plan the prompt of a new message. It changes nothing.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] tokens of the new message
-- Result: {session_view, the live reply (lib/messages.lua) or '', results of context_view} · 'gone' no such session
local s = session_at(ARGV[1])
if not s then return 'gone' end
return {session_view(s), s.live and live_member(s) or '', context_view(s, '+', s.htokens + tonumber(ARGV[2]) + MESSAGE_OVERHEAD)}
