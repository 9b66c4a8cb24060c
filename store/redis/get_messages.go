package redis

import (
	"context"

	"parley/conversation"
)

var getMessagesScript = newScript("get_messages", reads|admits)

// MessagesByID implements conversation.Store.
func (s *Store) MessagesByID(ctx context.Context, owner conversation.Owner, sessionID string, ids []string) ([]conversation.Message, error) {
	tag := tagOfOwner(owner)
	args := make([]any, 0, len(ids)+1)
	args = append(args, sessionID)
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := s.run(ctx, getMessagesScript, tag, []string{sessionKey(tag, sessionID)}, args...)
	if err != nil {
		return nil, err
	}
	if text(reply) == "gone" {
		return nil, conversation.ErrSessionNotFound
	}
	return readMembers(sessionID, reply)
}
