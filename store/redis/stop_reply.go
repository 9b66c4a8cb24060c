package redis

import (
	"context"

	"parley/conversation"
)

var stopReplyScript = newScript("stop_reply", admits|idempotent)

// StopReply implements conversation.Nodes. If the node that writes the reply is dead, EndOrphans ends the turn.
func (s *Store) StopReply(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	return s.message(ctx, stopReplyScript, owner, sessionID, messageID)
}
