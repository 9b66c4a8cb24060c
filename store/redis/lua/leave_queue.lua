-- Removes a waiter from a session's queue. If the session is granted to the waiter, it grants the session to the next waiter.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] waiter
-- Result: 1
local s = session_at(ARGV[1])
if s then leave(s, ARGV[2]) end
return 1
