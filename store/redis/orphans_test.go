package redis

import (
	"testing"

	"parley/conversation"
	"parley/stream"
)

// liveTurn begins a turn in a new session.
func liveTurn(t testing.TB, s *Store, owner conversation.Owner) conversation.TurnKey {
	t.Helper()
	created, err := s.CreateSession(t.Context(), owner, conversation.NewSession{
		UserID: conversation.UserPrefix + conversation.RandomText(16), Context: conversation.DefaultContextConfig,
	})
	if err != nil {
		t.Fatal(err)
	}
	return nextTurn(t, s, owner, created.Session.ID)
}

// nextTurn begins a turn in a session that is free.
func nextTurn(t testing.TB, s *Store, owner conversation.Owner, sessionID string) conversation.TurnKey {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), owner, newTurn(sessionID))
	if err != nil || begun.Queued != nil {
		t.Fatalf("BeginTurn: %+v, %v", begun, err)
	}
	return begun.Key
}

func newTurn(sessionID string) conversation.NewTurn {
	return conversation.NewTurn{
		SessionID: sessionID, Role: conversation.User, Content: "a question", Tokens: 10, OnBusy: conversation.Enqueue,
		Waiter: conversation.RandomText(16),
	}
}

// wantInterrupted checks how a turn ended whose node was gone.
func wantInterrupted(t *testing.T, s *Store, key conversation.TurnKey, text string) {
	t.Helper()
	m, err := s.Message(t.Context(), key.Owner, key.SessionID, key.MessageID)
	must(t, err)
	if m.Status != stream.Interrupted || m.Content != text || m.Tokens != len(text) || m.Usage == nil || !m.Usage.Estimated ||
		m.Usage.Prompt == 0 || m.Usage.Completion != len(text) || m.Usage.Total != m.Usage.Prompt+len(text) {
		t.Errorf("the reply is %+v, %+v", m, m.Usage)
	}
	session, err := s.Session(t.Context(), key.Owner, key.SessionID)
	must(t, err)
	if session.Live != "" || session.TokenUsage.Total != m.Usage.Total {
		t.Errorf("the session is %+v", session)
	}
}
