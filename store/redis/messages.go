package redis

import (
	"context"

	"parley/conversation"
)

var (
	listMessagesScript  = newScript("list_messages", reads|admits|sessions)
	getMessageScript    = newScript("get_message", reads|admits|sessions)
	stopReplyScript     = newScript("stop_reply", admits|sessions|idempotent)
	clearMessagesScript = newScript("clear_messages", admits|sessions|wakes|durable)
)

// Messages implements conversation.Store. Its cost is that of the page, however long the history.
func (s *Store) Messages(ctx context.Context, owner conversation.Owner, sessionID string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, listMessagesScript, tag, []string{sessionKey(tag, sessionID)},
		sessionID, query.From, flag(query.Inclusive), flag(query.Ascending), query.Limit)
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

// readMembers reads a list of messages.
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

// Message implements conversation.Store.
func (s *Store) Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	return s.message(ctx, getMessageScript, owner, sessionID, messageID)
}

// StopReply implements conversation.Nodes. A reply whose node is gone is ended by EndOrphans.
func (s *Store) StopReply(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	return s.message(ctx, stopReplyScript, owner, sessionID, messageID)
}

// message runs a script that returns one message.
func (s *Store) message(ctx context.Context, sc *script, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, sc, tag, []string{sessionKey(tag, sessionID)}, sessionID, messageID)
	if err != nil {
		return conversation.Message{}, err
	}
	switch word(list(reply)) {
	case "gone":
		return conversation.Message{}, conversation.ErrSessionNotFound
	case "none":
		return conversation.Message{}, conversation.ErrMessageNotFound
	}
	return readMember(sessionID, text(reply))
}

// ClearMessages implements conversation.Store. What is journalled of a reply goes when its turn ends.
func (s *Store) ClearMessages(ctx context.Context, owner conversation.Owner, sessionID, waiter string) (conversation.Cleared, error) {
	tag := tagOfOwner(owner)
	place := s.waiters.take(sessionID, waiter)
	reply, err := s.run(ctx, clearMessagesScript, tag, []string{sessionKey(tag, sessionID)},
		sessionID, waiter, s.node, conversation.RandomText(randomLength))
	parts := list(reply)
	if word(parts) != "queued" {
		s.waiters.drop(place)
	}
	if err != nil {
		return conversation.Cleared{}, err
	}
	if err := answers[word(parts)]; err != nil {
		return conversation.Cleared{}, err
	}
	switch {
	case word(parts) == "queued" && len(parts) == 2:
		return conversation.Cleared{Queued: s.waiters.await(place, text(parts[1]))}, nil
	case len(parts) == 3:
		session, err := readSession(sessionID, parts[2])
		return conversation.Cleared{Count: int(integer(parts[1])), Session: session}, err
	}
	return conversation.Cleared{}, clearMessagesScript.malformed()
}
