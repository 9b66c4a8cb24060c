-- Returns sessions of a page, newest first. It also prunes the indices of sessions.
--
-- An id encodes a time that is not earlier than the creation of its session (lib/ids.lua). So the script does not read an id that
-- encodes a lifetime ago or earlier: its session has expired. A later id can also belong to an expired session. That happens if
-- the ids ran ahead of the clock: the owner created more than one session per millisecond, or the clock was set back. The script
-- removes such ids from the index. It reads a limited number of ids, so the caller may have to call it again.
-- KEYS[1] index of all sessions, or of a user's sessions
-- ARGV[1] only sessions with ids before this id, '' for all · ARGV[2] maximum number of sessions
-- ARGV[3] maximum number of ids to read · ARGV[4] lifetime of a session in milliseconds
-- Result: {1 if more sessions follow, else 0, id before which the next call must continue or '', id, session_view, id, …}
prune()
local page, limit, read, gone = {0, ''}, tonumber(ARGV[2]), tonumber(ARGV[3]), {}
local before, oldest = ARGV[1] == '' and '+' or '(' .. ARGV[1], '[' .. SESSION_PREFIX .. clock_digits(now - ARGV[4] + 1)
local ids = redis.call('ZRANGE', KEYS[1], before, oldest, 'BYLEX', 'REV', 'LIMIT', 0, int(read))
for _, id in ipairs(ids) do
  local s = session_at(id)
  if not s then
    gone[#gone + 1] = id
  elseif #page == 2 + 2 * limit then
    page[1] = 1
    break
  else
    page[#page + 1] = id
    page[#page + 1] = session_view(s)
  end
end
if #gone > 0 then redis.call('ZREM', KEYS[1], unpack(gone)) end
if page[1] == 0 and #ids == read then page[2] = ids[read] end
return page
