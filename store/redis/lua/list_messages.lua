-- Returns a page of messages, and the session at the same time.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] message after which the page begins, '' for the start · ARGV[3] '1' to include this message
-- ARGV[4] '1' for oldest first, '' for newest first · ARGV[5] maximum number of messages
-- Result: {session_view, 1 if more messages follow, else 0, {message (lib/messages.lua), …}} · 'gone' no such session
local s = session_at(ARGV[1])
if not s then return 'gone' end
local from, inclusive, ascending, limit = ARGV[2], ARGV[3] == '1', ARGV[4] == '1', tonumber(ARGV[5])
local page = {}
local function take(first, last, ...)
  local members = redis.call('ZRANGE', messages_key(s.id), first, last, 'BYLEX', ...)
  for _, member in ipairs(members) do page[#page + 1] = member end
end
if ascending then
  take(from == '' and '-' or inclusive and '[' .. from or '[' .. from .. '\1', '+', 'LIMIT', 0, int(limit + 1))
  if #page <= limit and s.live and (s.live > from or inclusive and s.live == from) then page[#page + 1] = live_member(s) end
else
  if s.live and (from == '' or s.live < from or inclusive and s.live == from) then page[1] = live_member(s) end
  take(from == '' and '+' or inclusive and '(' .. from .. '\1' or '(' .. from, '-', 'REV', 'LIMIT', 0, int(limit + 1 - #page))
end
local more = #page > limit
if more then page[#page] = nil end
return {session_view(s), more and 1 or 0, page}
