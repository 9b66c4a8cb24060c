-- Returns the live turn that this node's waiter began with a BeginTurn whose result was lost. If there is none, it voids the
-- waiter: the waiter leaves the queue, and its BeginTurn begins no turn if it arrives later.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] waiter · ARGV[3] node
-- Result: {'begun', view, head before, …}, the result of turn_view · {'none'} the waiter is void
local s = session_at(ARGV[1])
if s and s.live and s.waiter == ARGV[2] and s.node == ARGV[3] then return turn_view(s) end
redis.call('SET', void_key(ARGV[2]), '', 'PX', VOID_KEPT)
if s then leave(s, ARGV[2]) end
return {'none'}
