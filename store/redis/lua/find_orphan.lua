-- Finds a turn of a dead node: one that is live, or one that is not settled and whose session is gone.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] the node · ARGV[3] waiter of the BeginTurn, '' for any
-- Result: {reply, fencing token, estimated tokens of the prompt, text of the reply} · nil if there is none
local s, r = session_at(ARGV[1]), reservation_at(ARGV[1])
if not r or r.node ~= ARGV[2] or ARGV[3] ~= '' and r.waiter ~= ARGV[3] then return nil end
local text = s and redis.call('GET', journal_key(s.id, r.fence)) or ''
return {r.reply, int(r.fence), int(r.estimate), text}
