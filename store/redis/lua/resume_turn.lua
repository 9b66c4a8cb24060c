-- Returns the turn that a BeginTurn of this node began if its result was lost and the turn is live. Otherwise it gives the waiter up: the
-- waiter leaves the queue, and its BeginTurn begins nothing should it still arrive.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter · ARGV[3] node
-- Result: {'begun', view, head before, …} as turn_view returns · {'none'}
local s = session_at(ARGV[1])
if s and s.live and s.waiter == ARGV[2] and s.node == ARGV[3] then return turn_view(s) end
redis.call('SET', void_key(ARGV[2]), '', 'PX', VOID_KEPT)
if s then leave(s, ARGV[2]) end
return {'none'}
