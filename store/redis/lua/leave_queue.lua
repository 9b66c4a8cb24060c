-- Gives up a place in a session's queue, or the session if it is kept for that waiter.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter
-- → 1
local s = session_at(ARGV[1])
if s then leave(s, ARGV[2]) end
return 1
