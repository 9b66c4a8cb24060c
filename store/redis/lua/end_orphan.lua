-- Ends the turn of an orphan, and removes the waiters of the orphan's node from the queue. If the turn has ended before, it does
-- nothing. If the session is gone, it only settles the usage.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the reply · ARGV[3] fencing token · ARGV[4] record of the reply
-- ARGV[5] the reply's tokens in a later prompt
-- ARGV[6] prompt tokens · ARGV[7] completion tokens · ARGV[8] total tokens · ARGV[9] the reply's record in the index
-- ARGV[10] the reply's terms · ARGV[11] the reply's bytes in the quota storedBytes
-- ARGV[12] '1' if the reply failed without text, so that later prompts leave out the whole exchange · ARGV[13…] counts of usage
-- Result: 1 if this call ended or settled the turn · 0 if the turn had ended before
local s, reply, fence = session_at(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local usage = {tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])}
if not s then return settle_turn(ARGV[1], fence, reply, usage[3], {unpack(ARGV, 13)}) and 1 or 0 end
if s.live ~= reply or s.fence ~= fence then return 0 end
local writer = s.node
drop_waiters_of(s, writer)
index_add(s, s.live, ARGV[9], ARGV[10])
end_turn(s, ARGV[4], tonumber(ARGV[5]), ARGV[12] == '1', tonumber(ARGV[11]), usage, {unpack(ARGV, 13)})
notify_node(writer, s.id) -- the node may be alive: perhaps it was only suspended
return 1
