-- Returns the turn that a BeginTurn of this node has begun whose answer was lost, if it is live. If not, the waiter is given up:
-- it has no place, and a BeginTurn of it that is still under way begins nothing.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter · ARGV[3] node
-- → {'begun', view, head before, …} (turn_view) · {'none'}
local s = session_at(ARGV[1])
if s and s.live and s.waiter == ARGV[2] and s.node == ARGV[3] then return turn_view(s) end
redis.call('SET', TAG .. ':void:' .. ARGV[2], '', 'PX', 60000)
if s then leave(s, ARGV[2]) end
return {'none'}
