-- Replaces a session's summary with a new summary that was made from it, and counts the usage of the model call. The tokens
-- also count for the session's user if the user has a window of tokens, which exists only if users have a limit.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] last message of the old summary, '' for none · ARGV[3] last message of the new summary
-- ARGV[4] text of the new summary · ARGV[5] figures of the new summary
-- ARGV[6] prompt tokens · ARGV[7] completion tokens · ARGV[8] total tokens · ARGV[9…] counts of usage
-- Result: 'saved' · 'gone' no such session
--   'stale' another summary was saved first, the new summary covers no more messages, or the messages were cleared
local s = session_at(ARGV[1])
if not s then return 'gone' end
local before = redis.call('HGET', summary_key(s.id), 'last') or ''
if before ~= ARGV[2] or ARGV[3] <= before or ARGV[3] <= (s.cleared or '') then return 'stale' end
redis.call('HSET', summary_key(s.id), 'last', ARGV[3], 'record', ARGV[4] .. ARGV[5], 'figures', ARGV[5])
redis.call('PEXPIREAT', summary_key(s.id), int(s.expires))
s.prompt, s.completion, s.total = s.prompt + tonumber(ARGV[6]), s.completion + tonumber(ARGV[7]), s.total + tonumber(ARGV[8])
session_save(s, 'prompt', 'completion', 'total')
count_usage(now, {unpack(ARGV, 9)})
charge(tokens_key(), tonumber(ARGV[8]))
if redis.call('EXISTS', user_tokens_key(s.user)) == 1 then charge(user_tokens_key(s.user), tonumber(ARGV[8])) end
notify_followers(s.id)
return 'saved'
