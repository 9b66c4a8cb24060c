-- Finds a turn of a node that is gone: live, or not settled in a session that is gone.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] the node · ARGV[3] waiter of the BeginTurn, '' for any
-- → {reply, fence, estimated tokens of the prompt, its text} · nil: there is none
local s, kept = session_at(ARGV[1]), turn_kept(ARGV[1])
if not kept or kept.node ~= ARGV[2] or ARGV[3] ~= '' and kept.waiter ~= ARGV[3] then return nil end
local text = s and redis.call('GET', journal_key(s.id, kept.fence)) or ''
return {kept.reply, int(kept.fence), int(kept.estimate), text}
