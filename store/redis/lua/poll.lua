-- Returns what has changed in a session that a node follows.
-- KEYS[1] the session
-- ARGV[1] its id · ARGV[2] the node · ARGV[3] for how many milliseconds it follows from now on, '' to leave that as it is
-- ARGV[4] a reply, '' for none · ARGV[5] offset in its text, in bytes
-- Result: {view, the node that writes in it or '', why the live reply must stop or '', the reply's text from the offset on if it is live,
--   {follower, milliseconds left, …} if this node writes in it, last message of the summary or '', its figures} ·
--   the clock in milliseconds if the session is gone
local s = session_at(ARGV[1])
if not s then return now end
if ARGV[3] ~= '' then add_follower(s, ARGV[2], ARGV[3]) end
local text, followers = '', {}
if s.live and s.live == ARGV[4] then text = redis.call('GETRANGE', journal_key(s.id, s.fence), ARGV[5], -1) end
if s.live and s.node == ARGV[2] then followers = followers_of(s) end
local summary = redis.call('HMGET', summary_key(s.id), 'last', 'figures')
return {session_view(s), s.node or '', s.stop or '', text, followers, summary[1] or '', summary[2] or ''}
