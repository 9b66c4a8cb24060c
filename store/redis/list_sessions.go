package redis

import (
	"context"

	"parley/conversation"
)

var listSessionsScript = newScript("list_sessions", admits|idempotent)

// Sessions implements conversation.Store. It takes one round trip, except if the index has ids of expired sessions that ran ahead
// of the clock (lua/list_sessions.lua). Then Sessions runs the script again until the page is full. Each run reads a limited
// number of ids, so Redis serves other clients between two runs. Each run also removes the ids of expired sessions that it has
// read, so a later list does not read them. All runs together last at most as long as one call.
func (s *Store) Sessions(ctx context.Context, owner conversation.Owner, query conversation.SessionQuery) (conversation.SessionPage, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tag := tagOfOwner(owner)
	index := sessionsKey(tag)
	if query.UserID != "" {
		index = userSessionsKey(tag, query.UserID)
	}
	var page conversation.SessionPage
	for before, read := query.Before, query.Limit+1; ; read = readAgain {
		reply, err := s.run(ctx, listSessionsScript, tag, []string{index},
			before, query.Limit-len(page.Sessions), read, conversation.Lifetime.Milliseconds())
		if err != nil {
			return conversation.SessionPage{}, err
		}
		if before, err = addSessions(&page, list(reply)); err != nil {
			return conversation.SessionPage{}, err
		}
		if before == "" {
			return page, nil
		}
	}
}

// addSessions adds a result of listSessionsScript to a page. next is the id before which the next call must continue, "" if the
// page is complete.
func addSessions(page *conversation.SessionPage, parts []any) (next string, err error) {
	if len(parts) < 2 || len(parts)%2 != 0 {
		return "", listSessionsScript.malformed()
	}
	page.More = integer(parts[0]) == 1
	for i := 2; i < len(parts); i += 2 {
		session, err := readSession(text(parts[i]), parts[i+1])
		if err != nil {
			return "", err
		}
		page.Sessions = append(page.Sessions, session)
	}
	return text(parts[1]), nil
}
