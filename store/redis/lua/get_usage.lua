-- Returns what was used in some hours, numbered from 1970 on.
-- KEYS[1] sessions by expiry
-- ARGV[1] from this hour on, where that is no longer ago than counts are kept · ARGV[2] up to and not including this one
-- ARGV[3] for how many hours counts are kept · ARGV[4] for how long a session lives, in milliseconds
-- → {this hour, first hour, sessions that exist, {hour, how many of them were created in it, hour, how many …}, {day, {field, count …}, day …}}
prune()
local this = math.floor(now / HOUR)
local from, to = math.max(tonumber(ARGV[1]), this - ARGV[3]), math.min(tonumber(ARGV[2]), this + 2)
local existing, days = {}, {}
local function sessions(from, to) return redis.call('ZCOUNT', KEYS[1], '(' .. int(math.max(now, from)), int(math.max(now, to))) end
for hour = math.max(from, this - math.ceil(ARGV[4] / HOUR)), to - 1 do
  local expire = hour * HOUR + ARGV[4]
  local n = sessions(expire - 1, expire + HOUR - 1)
  if n > 0 then
    existing[#existing + 1] = hour
    existing[#existing + 1] = n
  end
end
for day = math.floor(from / 24), math.floor((to - 1) / 24) do
  local counts = redis.call('HGETALL', counts_key(day))
  if #counts > 0 then
    days[#days + 1] = day
    days[#days + 1] = counts
  end
end
return {this, from, redis.call('ZCOUNT', KEYS[1], '(' .. int(now), '+inf'), existing, days}
