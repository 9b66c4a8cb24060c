package redis

import (
	"context"

	"parley/conversation"
)

var listSessionsScript = newScript("list_sessions", admits|idempotent)

// Sessions implements conversation.Store.
func (s *Store) Sessions(ctx context.Context, owner conversation.Owner, query conversation.SessionQuery) (conversation.SessionPage, error) {
	tag := tagOfOwner(owner)
	index := sessionsKey(tag)
	if query.UserID != "" {
		index = userSessionsKey(tag, query.UserID)
	}
	reply, err := s.run(ctx, listSessionsScript, tag, []string{index}, query.Before, query.Limit)
	if err != nil {
		return conversation.SessionPage{}, err
	}
	parts := list(reply)
	if len(parts)%2 != 1 {
		return conversation.SessionPage{}, listSessionsScript.malformed()
	}
	page := conversation.SessionPage{More: integer(parts[0]) == 1}
	for i := 1; i < len(parts); i += 2 {
		session, err := readSession(text(parts[i]), parts[i+1])
		if err != nil {
			return conversation.SessionPage{}, err
		}
		page.Sessions = append(page.Sessions, session)
	}
	return page, nil
}
