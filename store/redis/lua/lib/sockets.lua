-- This library counts the open sockets of an account in one mode. Each node stores its own count, as a field of a hash:
-- "<count> <change> <end of the lease in milliseconds>". change numbers the changes of the count on the node, so that a script
-- that arrives late does not replace a newer count.
-- Defines: newer_sockets, other_sockets, set_sockets.

-- Returns the count that a node has stored, if its change is newer than the given change; otherwise nil.
local function newer_sockets(node, change)
  local count, stored = string.match(redis.call('HGET', sockets_key(), node) or '', '^(%d+) (%d+) ')
  if stored and tonumber(stored) > tonumber(change) then return tonumber(count) end
end

-- Returns the number of open sockets on all nodes except the given node. If node is '', it counts the sockets on all nodes. It
-- removes the counts of nodes whose lease has lapsed.
local function other_sockets(node)
  local stored, all = redis.call('HGETALL', sockets_key()), 0
  for i = 1, #stored, 2 do
    local count, ends = string.match(stored[i + 1], '^(%d+) %d+ (%d+)$')
    if tonumber(ends) <= now then
      redis.call('HDEL', sockets_key(), stored[i])
    elseif stored[i] ~= node then
      all = all + count
    end
  end
  return all
end

-- Stores a node's count. lease is the length of its lease in milliseconds.
local function set_sockets(node, change, count, lease)
  redis.call('HSET', sockets_key(), node, table.concat({count, change, int(now + lease)}, ' '))
  redis.call('PEXPIRE', sockets_key(), lease)
end
