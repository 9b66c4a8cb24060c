-- The nodes that follow a session. They show the session to viewers, and are notified when it changes.
-- Defines: add_follower, followers_of.

-- Adds a node to the followers, or renews its lease.
local function add_follower(s, node, milliseconds)
  redis.call('HSET', followers_key(s.id), node, int(now + milliseconds))
  redis.call('PEXPIRE', followers_key(s.id), milliseconds)
end

-- Returns {node, milliseconds left, node, …}, and removes the nodes whose lease has lapsed.
local function followers_of(s)
  local stored, all = redis.call('HGETALL', followers_key(s.id)), {}
  for i = 1, #stored, 2 do
    local left = tonumber(stored[i + 1]) - now
    if left > 0 then
      all[#all + 1], all[#all + 2] = stored[i], left
    else
      redis.call('HDEL', followers_key(s.id), stored[i])
    end
  end
  return all
end
