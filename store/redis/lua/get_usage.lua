-- Returns the usage of a range of hours, numbered from 1970. It packs up to DAYS_PACKED_BY_READ days of the range, and prunes the
-- indices of sessions.
-- KEYS[1] sessions by expiry
-- ARGV[1] first hour · ARGV[2] end of the range, exclusive
-- ARGV[3] retention period in hours; the range begins no earlier · ARGV[4] lifetime of a session in milliseconds
-- Result: {this hour, first hour of the range, number of existing sessions, number of active API keys, stored bytes,
--   number of open sockets, {hour, number of existing sessions that were created in that hour, hour, …},
--   {day, {field, count, …}, packed counts (lib/usage.lua) or '', day, …}}
prune()
local this = math.floor(now / HOUR)
local first, last = math.max(tonumber(ARGV[1]), this - ARGV[3]), math.min(tonumber(ARGV[2]), this + 2) - 1
local existing, days = {}, {}
local function expiring(from, to) return redis.call('ZCOUNT', KEYS[1], '(' .. int(math.max(now, from)), int(math.max(now, to))) end
for hour = math.max(first, this - math.ceil(ARGV[4] / HOUR)), last do
  local expire = hour * HOUR + ARGV[4]
  local n = expiring(expire - 1, expire + HOUR - 1)
  if n > 0 then
    existing[#existing + 1] = hour
    existing[#existing + 1] = n
  end
end
local left = DAYS_PACKED_BY_READ
for day = math.floor(first / 24), math.floor(last / 24) do
  local counts = redis.call('HGETALL', counts_key(day))
  if #counts > 0 and left > 0 and day <= last_packable_day() and pack_day(day, counts) then counts, left = {}, left - 1 end
  local packed = redis.call('GET', packed_key(day))
  if #counts > 0 or packed then
    days[#days + 1] = day
    days[#days + 1] = counts
    days[#days + 1] = packed or ''
  end
end
local active = redis.call('ZCOUNT', KEYS[1], '(' .. int(now), '+inf')
return {this, first, active, active_keys(), stored_at(now).total, other_sockets(''), existing, days}
