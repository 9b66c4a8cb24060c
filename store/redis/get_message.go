package redis

import (
	"context"

	"parley/conversation"
)

var getMessageScript = newScript("get_message", reads|admits)

// Message implements conversation.Store.
func (s *Store) Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	return s.message(ctx, getMessageScript, owner, sessionID, messageID)
}

// message runs a script that returns one message, get_message or stop_reply.
func (s *Store) message(ctx context.Context, sc *script, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, sc, tag, []string{sessionKey(tag, sessionID)}, sessionID, messageID)
	if err != nil {
		return conversation.Message{}, err
	}
	if err := refusals[outcome(list(reply))]; err != nil {
		return conversation.Message{}, err
	}
	return readMember(sessionID, text(reply))
}
