-- This library sends wake-ups: messages to the inboxes of nodes. A wake-up names a session that the node must look at again. A
-- lost wake-up delays text but loses none, because nodes also poll.
-- Defines: notify_node, notify_followers, stop_reply.

-- Sends a word to a node's inbox (schema.go lists the words).
local function notify_node(node, word) redis.call('PUBLISH', inbox_channel(node), word) end

-- Notifies the followers of a session that the session has changed. It also notifies the node writer, unless writer is nil. Each
-- node is notified once.
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

-- Stores the reason why the live reply must stop, and notifies the node that writes the reply. STOP_CLEARED replaces
-- STOP_CANCELLED, never the reverse.
local function stop_reply(s, reason)
  if s.stop ~= reason and s.stop ~= STOP_CLEARED then
    s.stop = reason
    session_save(s, 'stop')
  end
  notify_node(s.node, s.id)
end
