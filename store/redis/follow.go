package redis

import (
	"context"
	"time"

	"parley/conversation"
)

var followScript = newScript("follow", admits|idempotent)

// Follow implements conversation.Nodes. The script notifies the node that writes in the session. From the next tick on, that node
// sends wake-ups to this node.
func (s *Store) Follow(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	now, tag := time.Now(), tagOfOwner(owner)
	reply, err := s.run(ctx, followScript, tag, []string{sessionKey(tag, sessionID)},
		sessionID, s.node, conversation.FollowLease.Milliseconds())
	if err != nil {
		return conversation.Session{}, err
	}
	if reply == nil {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	s.followers.renew(sessionID, now)
	return readSession(sessionID, reply)
}
