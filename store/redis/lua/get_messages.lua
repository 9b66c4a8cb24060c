-- Returns messages by their ids, in that order. Those that are not there are left out.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2…] ids of messages
-- → {message (lua/session.lua) …} · 'gone'
local s, found = session_at(ARGV[1]), {}
if not s then return 'gone' end
for i = 2, #ARGV do found[#found + 1] = message_at(s, ARGV[i]) end
return found
