-- Returns the messages with the given ids, in the order of the ids. It skips unknown ids.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2…] ids of messages
-- Result: {message (lib/messages.lua), …} · 'gone' no such session
local s, found = session_at(ARGV[1]), {}
if not s then return 'gone' end
for i = 2, #ARGV do found[#found + 1] = message_at(s, ARGV[i]) end
return found
