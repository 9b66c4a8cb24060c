-- Has a node poked about a session. The node that writes in it is told, so that it pokes this one from its next tick on.
-- KEYS[1] session · KEYS[2] who watches it
-- ARGV[1] session's id · ARGV[2] the node · ARGV[3] for how long, in milliseconds
-- → the session, as in lua/seen.lua · nil: it is no more
local session = session_fields(KEYS[1])
if not session then return nil end
watch(KEYS[2], ARGV[2], ARGV[3])
local writer = redis.call('HGET', KEYS[1], 'node')
if writer and writer ~= ARGV[2] then redis.call('PUBLISH', 'inbox:' .. writer, ARGV[1] .. '+' .. ARGV[2]) end
return session
