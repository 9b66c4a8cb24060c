-- Makes a node a follower of a session. If another node writes in the session, that node is notified. From the next tick on, the
-- writing node sends wake-ups to the follower.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the node that follows · ARGV[3] lease in milliseconds
-- Result: session_view · nil no such session
local s = session_at(ARGV[1])
if not s then return nil end
add_follower(s, ARGV[2], ARGV[3])
if s.node and s.node ~= ARGV[2] then notify_node(s.node, follower_word(s.id, ARGV[2])) end
return session_view(s)
