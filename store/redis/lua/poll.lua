-- Returns the state of a session that a node follows, and renews the node's lease on request.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the node · ARGV[3] new lease in milliseconds, '' to keep the lease
-- ARGV[4] a reply, '' for none · ARGV[5] offset in the reply's text, in bytes
-- Result: server time in milliseconds if the session is gone, else a list of
--   session_view · the node that writes in the session or '' · the reason why the live reply must stop or ''
--   text of the reply ARGV[4] from the offset on, '' if the reply is not live
--   the result of followers_of, empty unless the node ARGV[2] writes in the session
--   last message of the summary or '' · figures of the summary or ''
local s = session_at(ARGV[1])
if not s then return now end
if ARGV[3] ~= '' then add_follower(s, ARGV[2], ARGV[3]) end
local text, followers = '', {}
if s.live and s.live == ARGV[4] then text = redis.call('GETRANGE', journal_key(s.id, s.fence), ARGV[5], -1) end
if s.live and s.node == ARGV[2] then followers = followers_of(s) end
local summary = redis.call('HMGET', summary_key(s.id), 'last', 'figures')
return {session_view(s), s.node or '', s.stop or '', text, followers, summary[1] or '', summary[2] or ''}
