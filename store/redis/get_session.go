package redis

import (
	"context"

	"parley/conversation"
)

var getSessionScript = newScript("get_session", reads|admits)

// Session implements conversation.Store.
func (s *Store) Session(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getSessionScript, tag, []string{sessionKey(tag, sessionID)}, sessionID)
	if err != nil {
		return conversation.Session{}, err
	}
	return sessionOrGone(sessionID, reply)
}
