package redis

import (
	"context"

	"parley/conversation"
)

var clearMessagesScript = newScript("clear_messages", admits|wakes|durable)

// ClearMessages implements conversation.Store. If a reply is live, ClearMessages returns Queued, and must be called again after
// the turn has ended. The end of the turn empties the reply's journal.
func (s *Store) ClearMessages(ctx context.Context, owner conversation.Owner, sessionID, waiter string) (conversation.Cleared, error) {
	tag := tagOfOwner(owner)
	place := s.waiters.register(sessionID, waiter)
	reply, err := s.run(ctx, clearMessagesScript, tag, []string{sessionKey(tag, sessionID)},
		sessionID, waiter, s.node, conversation.RandomText(randomLength))
	parts := list(reply)
	if outcome(parts) != "queued" {
		s.waiters.drop(place)
	}
	if err != nil {
		return conversation.Cleared{}, err
	}
	if err := refusals[outcome(parts)]; err != nil {
		return conversation.Cleared{}, err
	}
	switch {
	case outcome(parts) == "queued" && len(parts) == 2:
		return conversation.Cleared{Queued: s.waiters.await(place, text(parts[1]))}, nil
	case len(parts) == 3:
		session, err := readSession(sessionID, parts[2])
		return conversation.Cleared{Count: int(integer(parts[1])), Session: session}, err
	}
	return conversation.Cleared{}, clearMessagesScript.malformed()
}
