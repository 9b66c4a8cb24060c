-- Ends a turn once. If the session is gone, it only settles the usage.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] the reply · ARGV[3] fencing token · ARGV[4] record of the reply
-- ARGV[5] the reply's tokens in a later prompt
-- ARGV[6] prompt tokens · ARGV[7] completion tokens · ARGV[8] total tokens · ARGV[9] the reply's record in the index
-- ARGV[10] the reply's terms · ARGV[11] the reply's bytes in the quota storedBytes
-- ARGV[12] '1' if the reply failed without text, so that later prompts leave out the whole exchange · ARGV[13…] counts of usage
-- Result: {'ended', createdAt of the reply} · {'gone'} no such session
--   {'fenced', the stored reply or ''} the turn had ended, or the fencing token is wrong
local s, reply, fence = session_at(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local usage = {tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])}
if not s then
  settle_turn(ARGV[1], fence, reply, usage[3], {unpack(ARGV, 13)})
  return {'gone'}
end
if s.live ~= reply or s.fence ~= fence then return {'fenced', message_at(s, reply) or ''} end
local created = s.last
index_add(s, s.live, ARGV[9], ARGV[10])
end_turn(s, ARGV[4], tonumber(ARGV[5]), ARGV[12] == '1', tonumber(ARGV[11]), usage, {unpack(ARGV, 13)})
return {'ended', created}
