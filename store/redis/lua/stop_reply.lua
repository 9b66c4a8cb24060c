-- Returns a message. If it is the live reply, its node is told that it is to stop.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] the message's id
-- → message (lua/session.lua) · {'gone'} the session is · {'none'} there is no such message
local s = session_at(ARGV[1])
if not s then return {'gone'} end
if s.live and s.live == ARGV[2] then stop(s, 'cancelled') end
return message_at(s, ARGV[2]) or {'none'}
