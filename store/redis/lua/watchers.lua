-- Who watches a session. This text stands in front of the scripts that say or ask it, after session.lua.

local function watchers_key(s) return TAG .. ':v:' .. s.id end

-- Has a node watch a session for some milliseconds from now on.
local function watch(s, node, milliseconds)
  redis.call('HSET', watchers_key(s), node, int(now + milliseconds))
  redis.call('PEXPIRE', watchers_key(s), milliseconds)
end

-- Returns who watches a session: node, for how many milliseconds, …; those that do no more are removed.
local function watchers(s)
  local kept, all = redis.call('HGETALL', watchers_key(s)), {}
  for i = 1, #kept, 2 do
    local left = tonumber(kept[i + 1]) - now
    if left > 0 then
      all[#all + 1], all[#all + 2] = kept[i], left
    else
      redis.call('HDEL', watchers_key(s), kept[i])
    end
  end
  return all
end
