-- This library stores the followers of a session: the nodes that show the session to viewers. They are notified when the session
-- changes.
-- Defines: add_follower, followers_of.

-- Adds a node to a session's followers, or renews the node's lease.
local function add_follower(s, node, milliseconds)
  redis.call('HSET', followers_key(s.id), node, int(now + milliseconds))
  redis.call('PEXPIRE', followers_key(s.id), milliseconds)
end

-- Returns a session's followers, as {node, milliseconds left of the lease, node, …}. It removes followers with a lapsed lease.
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
