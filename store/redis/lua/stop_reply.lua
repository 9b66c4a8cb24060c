-- Returns a message. If the message is the live reply, it asks the node that writes the reply to stop.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the message's id
-- Result: the message (lib/messages.lua) · {'gone'} no such session · {'none'} no such message
local s = session_at(ARGV[1])
if not s then return {'gone'} end
if s.live and s.live == ARGV[2] then stop_reply(s, STOP_CANCELLED) end
return message_at(s, ARGV[2]) or {'none'}
