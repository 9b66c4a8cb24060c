package redis

import (
	"context"

	"parley/conversation"
)

var listMessagesScript = newScript("list_messages", reads|admits)

// Messages implements conversation.Store. Its cost depends on the size of the page, not on the length of the history.
func (s *Store) Messages(ctx context.Context, owner conversation.Owner, sessionID string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, listMessagesScript, tag, []string{sessionKey(tag, sessionID)},
		sessionID, query.From, boolean(query.Inclusive), boolean(query.Ascending), query.Limit)
	if err != nil {
		return conversation.MessagePage{}, err
	}
	parts := list(reply)
	if text(reply) == "gone" {
		return conversation.MessagePage{}, conversation.ErrSessionNotFound
	} else if len(parts) != 3 {
		return conversation.MessagePage{}, listMessagesScript.malformed()
	}
	page := conversation.MessagePage{More: integer(parts[1]) == 1}
	if page.Session, err = readSession(sessionID, parts[0]); err != nil {
		return conversation.MessagePage{}, err
	}
	page.Messages, err = readMembers(sessionID, parts[2])
	return page, err
}

// readMembers reads a list of messages in the format of readMember.
func readMembers(sessionID string, reply any) ([]conversation.Message, error) {
	members := list(reply)
	if len(members) == 0 {
		return nil, nil
	}
	messages := make([]conversation.Message, len(members))
	for i, member := range members {
		var err error
		if messages[i], err = readMember(sessionID, text(member)); err != nil {
			return nil, err
		}
	}
	return messages, nil
}
