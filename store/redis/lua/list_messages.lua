-- Returns a page of messages, and the session at the same time. The page has at most PAGE_BYTES of records, or one message.
-- KEYS[1] the session
-- ARGV[1] the session's id · ARGV[2] message after which the page begins, '' for the start · ARGV[3] '1' to include this message
-- ARGV[4] '1' for oldest first, '' for newest first · ARGV[5] maximum number of messages
-- Result: {session_view, 1 if more messages follow, else 0, {message (lib/messages.lua), …}} · 'gone' no such session
local s = session_at(ARGV[1])
if not s then return 'gone' end
local from, inclusive, ascending, limit = ARGV[2], ARGV[3] == '1', ARGV[4] == '1', tonumber(ARGV[5])
local page, bytes, more = {}, 0, false
-- Adds a member to the page. If the page has no room for it, more becomes true instead.
local function add(member, size)
  bytes = bytes + size
  more = #page == limit or #page > 0 and bytes > PAGE_BYTES
  if not more then page[#page + 1] = member end
end
-- Adds the members from first to last. If the whole session fits a page, one ZRANGE reads them all. Otherwise it reads few
-- members at a time, because large members that do not fit would take much memory.
local most = s.bytes and s.bytes <= PAGE_BYTES and limit + 1 or HISTORY_FIRST_READ
local function take(first, last)
  local key = messages_key(s.id)
  repeat
    local read, members = int(math.min(most, limit + 1 - #page))
    if ascending then members = redis.call('ZRANGE', key, first, last, 'BYLEX', 'LIMIT', 0, read)
    else members = redis.call('ZRANGE', key, first, last, 'BYLEX', 'REV', 'LIMIT', 0, read) end
    for i = 1, #members do
      if not more then add(members[i], #members[i] - HEAD_LENGTH) end
    end
    if #members < tonumber(read) then return end
    first = '(' .. string.sub(members[#members], 1, ID_LENGTH) .. (ascending and '\1' or '')
  until more
end
if ascending then
  take(from == '' and '-' or inclusive and '[' .. from or '[' .. from .. '\1', '+')
  if not more and s.live and (s.live > from or inclusive and s.live == from) then add(live_member(s), 0) end
else
  if s.live and (from == '' or s.live < from or inclusive and s.live == from) then add(live_member(s), 0) end
  take(from == '' and '+' or inclusive and '(' .. from .. '\1' or '(' .. from, '-')
end
return {session_view(s), more and 1 or 0, page}
