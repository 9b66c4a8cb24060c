-- What several operations see of a session, and who watches it.

local SEEN = {'user', 'created', 'expires', 'last', 'count', 'prompt', 'completion', 'total', 'meta', 'config', 'htokens',
  'head', 'cleared', 'live', 'asked', 'fence'}

-- Returns the fields of a session, nil if it is no more.
local function session_fields(key)
  local f = redis.call('HMGET', key, unpack(SEEN))
  if not f[1] then return nil end
  for i = 1, #SEEN do f[i] = f[i] or '' end
  return f
end

-- Has a node watch a session for some milliseconds from now on.
local function watch(key, node, milliseconds)
  redis.call('HSET', key, node, string.format('%d', now + milliseconds))
  redis.call('PEXPIRE', key, milliseconds)
end

-- Returns who watches a session: node, for how many milliseconds, …; those that do no more are removed.
local function watchers(key)
  local kept, all = redis.call('HGETALL', key), {}
  for i = 1, #kept, 2 do
    local left = tonumber(kept[i + 1]) - now
    if left > 0 then
      all[#all + 1], all[#all + 2] = kept[i], left
    else
      redis.call('HDEL', key, kept[i])
    end
  end
  return all
end
