package redis

import (
	"context"

	"parley/conversation"
	"parley/store/record"
)

var getSummaryScript = newScript("get_summary", reads|admits)

// Summary implements conversation.Store.
func (s *Store) Summary(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, conversation.Summary, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getSummaryScript, tag, []string{sessionKey(tag, sessionID)}, sessionID)
	if err != nil {
		return conversation.Session{}, conversation.Summary{}, err
	}
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.Summary{}, conversation.ErrSessionNotFound
	}
	parts := list(reply)
	if len(parts) != 3 {
		return conversation.Session{}, conversation.Summary{}, getSummaryScript.malformed()
	}
	session, err := readSession(sessionID, parts[0])
	if err != nil {
		return conversation.Session{}, conversation.Summary{}, err
	}
	summary, err := readSummary(parts[1], parts[2])
	return session, summary, err
}

// readSummary reads a summary from the id of its last message and its record.
func readSummary(last, figures any) (summary conversation.Summary, err error) {
	if summary.Last = text(last); summary.Last != "" {
		err = record.ReadSummary(text(figures), &summary)
	}
	return summary, err
}
