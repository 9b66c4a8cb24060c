-- Makes a node a follower of a session. It notifies the node that writes in the session, which notifies the follower from its
-- next tick on.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] the node that follows · ARGV[3] lease in milliseconds
-- Result: view · nil no such session
local s = session_at(ARGV[1])
if not s then return nil end
add_follower(s, ARGV[2], ARGV[3])
if s.node and s.node ~= ARGV[2] then notify_node(s.node, follower_word(s.id, ARGV[2])) end
return session_view(s)
