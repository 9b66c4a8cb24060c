-- Returns what a turn would begin with. It changes nothing.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] tokens of the new message
-- → {view, the reply that is streaming, '' for none, … as turn_view has it} (lua/session.lua) · 'gone'
local s = session_at(ARGV[1])
if not s then return 'gone' end
return {session_view(s), s.live and live_member(s) or '', context_view(s, '+', s.htokens + tonumber(ARGV[2]) + MESSAGE_OVERHEAD)}
