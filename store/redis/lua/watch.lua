-- Has a node poked about a session. The node that writes in it is told, so that it pokes this one from its next tick on.
-- KEYS[1] session
-- ARGV[1] session's id · ARGV[2] the node · ARGV[3] for how long, in milliseconds
-- → the session, as session_view has it · nil: it is no more
local s = session_at(ARGV[1])
if not s then return nil end
watch(s, ARGV[2], ARGV[3])
if s.node and s.node ~= ARGV[2] then poke_node(s.node, s.id .. '+' .. ARGV[2]) end
return session_view(s)
