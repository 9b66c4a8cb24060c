-- Returns the live turn of a waiter, after the result of BeginTurn was lost. If the waiter has no live turn, it voids the waiter:
-- the waiter leaves the queue, and a BeginTurn of this waiter that arrives later begins no turn.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] waiter · ARGV[3] node
-- Result: {'begun', …}, the result of turn_view · {'none'} the waiter is void
local s = session_at(ARGV[1])
if s and s.live and s.waiter == ARGV[2] and s.node == ARGV[3] then return turn_view(s) end
redis.call('SET', void_key(ARGV[2]), '', 'PX', VOID_KEPT)
if s then leave(s, ARGV[2]) end
return {'none'}
