-- Returns a message.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the message's id
-- Result: the message (lib/messages.lua) · {'gone'} no such session · {'none'} no such message
local s = session_at(ARGV[1])
if not s then return {'gone'} end
return message_at(s, ARGV[2]) or {'none'}
