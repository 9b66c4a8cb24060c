package redis

import (
	"context"

	"parley/conversation"
)

var deleteSessionScript = newScript("delete_session", admits|wakes|durable)

// DeleteSession implements conversation.Store. After a lost response, a repeat returns ErrSessionNotFound if the first call
// deleted the session.
func (s *Store) DeleteSession(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, deleteSessionScript, tag, []string{sessionKey(tag, sessionID)}, sessionID)
	if err != nil {
		return conversation.Session{}, err
	}
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	parts := list(reply)
	if len(parts) != 2 {
		return conversation.Session{}, deleteSessionScript.malformed()
	}
	if integer(parts[1]) == 1 {
		s.forgetRequests(ctx, tag, sessionID)
	}
	return readSession(sessionID, parts[0])
}
