-- Finds the unsettled turn that a node began in a session: the live turn or, if the session is gone, the last turn
-- before its end.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the node · ARGV[3] the waiter that began the turn, '' for any
-- Result: {reply, fencing token, estimated tokens of the prompt, text of the reply, '' if the session is gone} · nil no such turn
local s, r = session_at(ARGV[1]), reservation_at(ARGV[1])
if not r or r.node ~= ARGV[2] or ARGV[3] ~= '' and r.waiter ~= ARGV[3] then return nil end
local text = s and redis.call('GET', journal_key(s.id, r.fence)) or ''
return {r.reply, r.fence, r.estimate, text}
