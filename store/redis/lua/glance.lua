-- Says what has become of a session that a node watches.
-- KEYS[1] session · KEYS[2] who watches it
-- ARGV[1] start of the names of its journals · ARGV[2] the node · ARGV[3] for how long it watches from now on, in milliseconds,
-- or '' to leave it at what it said last · ARGV[4] a reply, '' for none · ARGV[5] offset in its text, in bytes
-- → {the session, as in lua/seen.lua, the node that writes in it or '', why that is to stop or '', text of the reply from
--    the offset on, if it is live, who watches it, if this node writes in it: node, for how many milliseconds, …} ·
--   nil: it is no more
local session = session_fields(KEYS[1])
if not session then return nil end
if ARGV[3] ~= '' then watch(KEYS[2], ARGV[2], ARGV[3]) end
local turn = redis.call('HMGET', KEYS[1], 'live', 'fence', 'node', 'stop')
local live, writer, text, watching = turn[1] or '', turn[3] or '', '', {}
if live == '' then return {session, '', '', '', {}} end
if live == ARGV[4] then text = redis.call('GETRANGE', ARGV[1] .. turn[2], ARGV[5], -1) end
if writer == ARGV[2] then watching = watchers(KEYS[2]) end
return {session, writer, turn[4] or '', text, watching}
