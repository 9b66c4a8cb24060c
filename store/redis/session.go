package redis

import (
	"encoding/json"

	"parley/conversation"
)

// sessionOrGone reads the result of session_view. It returns conversation.ErrSessionNotFound if the result is the word gone.
func sessionOrGone(id string, reply any) (conversation.Session, error) {
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	return readSession(id, reply)
}

// readSession reads the result of session_view (lua/lib/session.lua).
func readSession(id string, view any) (conversation.Session, error) {
	v := structReader{rest: text(view)}
	s := conversation.Session{ID: id, CreatedAt: v.time(), ExpiresAt: v.time(), LastActivity: v.time(), MessageCount: v.int()}
	s.TokenUsage = conversation.TokenUsage{Prompt: v.int(), Completion: v.int(), Total: v.int()}
	s.Context.MaxTokens, s.HistoryTokens, s.Fence = v.int(), v.int(), v.number()
	s.Context.CompressionEnabled = v.number() == 1
	s.UserID = v.text()
	if metadata := v.text(); metadata != "" {
		s.Metadata = json.RawMessage(metadata)
	}
	s.Context.RetentionPolicy = conversation.RetentionPolicy(v.text())
	s.Head, s.Cleared, s.LiveReply, s.LiveMessage = v.text(), v.text(), v.text(), v.text()
	if v.malformed || v.rest != "" {
		return conversation.Session{}, errRecord
	}
	return s, nil
}
