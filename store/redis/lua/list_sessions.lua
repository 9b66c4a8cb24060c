-- Returns a page of sessions, newest first. It also prunes the indices of sessions.
-- KEYS[1] index of all sessions, or of a user's sessions
-- ARGV[1] only sessions with ids before this id, '' for all · ARGV[2] maximum number of sessions
-- Result: {1 if more sessions follow, else 0, id, session_view, id, session_view, …}
prune()
local page, before, limit = {0}, ARGV[1] == '' and '+' or '(' .. ARGV[1], tonumber(ARGV[2])
while true do
  local wanted = limit + 1 - (#page - 1) / 2
  local ids = redis.call('ZRANGE', KEYS[1], before, '-', 'BYLEX', 'REV', 'LIMIT', 0, int(wanted))
  for _, id in ipairs(ids) do
    local s = session_at(id)
    if s and #page > 2 * limit then
      page[1] = 1
      return page
    end
    if s then
      page[#page + 1] = id
      page[#page + 1] = session_view(s)
    end
  end
  if #ids < wanted then return page end
  before = '(' .. ids[#ids]
end
