-- Wake-ups: messages to the inboxes of nodes. A wake-up names the session that the node must look at again. A lost wake-up delays
-- text but loses none, because nodes poll as well.
-- Defines: notify_node, notify_followers, stop_reply.

-- Sends a word to a node's inbox (schema.go lists the words).
local function notify_node(node, word) redis.call('PUBLISH', inbox_channel(node), word) end

-- Notifies the followers of a session of a change, and also the node writer unless it is nil. It notifies each node once.
local function notify_followers(id, writer)
  local followers = redis.call('HGETALL', followers_key(id))
  for i = 1, #followers, 2 do
    if tonumber(followers[i + 1]) > now then
      notify_node(followers[i], id)
      if followers[i] == writer then writer = nil end
    end
  end
  if writer then notify_node(writer, id) end
end

-- Stores why the live reply must stop, and notifies its node. STOP_CLEARED replaces STOP_CANCELLED, never the reverse.
local function stop_reply(s, reason)
  if s.stop ~= reason and s.stop ~= STOP_CLEARED then
    s.stop = reason
    session_save(s, 'stop')
  end
  notify_node(s.node, s.id)
end
