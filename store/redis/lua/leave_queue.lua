-- Removes a waiter from a session's queue, or passes on the session that is granted to it.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter
-- Result: 1
local s = session_at(ARGV[1])
if s then leave(s, ARGV[2]) end
return 1
