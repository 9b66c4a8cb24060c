-- Says what has become of a session that a node watches.
-- KEYS[1] session
-- ARGV[1] session's id · ARGV[2] the node · ARGV[3] for how long it watches from now on, in milliseconds, or '' to leave it at
--   what it said last · ARGV[4] a reply, '' for none · ARGV[5] offset in its text, in bytes
-- → {the session, as session_view has it, the node that writes in it or '', why that is to stop or '', text of the reply
--    from the offset on, if it is live, who watches it, if this node writes in it: node, for how many milliseconds, …, the last
--    message of the summary or '', its figures} ·
--   the clock in milliseconds: it is no more
local s = session_at(ARGV[1])
if not s then return now end
if ARGV[3] ~= '' then watch(s, ARGV[2], ARGV[3]) end
local text, watching = '', {}
if s.live and s.live == ARGV[4] then text = redis.call('GETRANGE', journal_key(s.id, s.fence), ARGV[5], -1) end
if s.live and s.node == ARGV[2] then watching = watchers(s) end
local summary = redis.call('HMGET', summary_key(s.id), 'last', 'figures')
return {session_view(s), s.node or '', s.stop or '', text, watching, summary[1] or '', summary[2] or ''}
