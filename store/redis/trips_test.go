package redis

import (
	"context"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
)

// TestEachOperationIsOneTrip holds the store to design section 7, round trips: with the admission of its request.
func TestEachOperationIsOneTrip(t *testing.T) {
	s := newStore(t)
	owner := conversation.Owner{Account: newAccount(), Mode: conversation.Live}
	p := newKey(t, s, auth.Owner{Account: owner.Account, Mode: auth.Live})
	session := newSession(t, s, owner)
	var begun conversation.Begun
	operations := []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"the first sight of a key", func(ctx context.Context) error {
			_, err := s.KeyByHash(ctx, p.Secret)
			return err
		}},
		{"create", func(ctx context.Context) error {
			_, err := s.CreateSession(ctx, owner, conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
			return err
		}},
		{"get", func(ctx context.Context) error {
			_, err := s.Session(ctx, owner, session.ID)
			return err
		}},
		{"list", func(ctx context.Context) error {
			_, err := s.Sessions(ctx, owner, conversation.SessionQuery{Limit: 20})
			return err
		}},
		{"send, before the model is called", func(ctx context.Context) (err error) {
			begun, err = s.BeginTurn(ctx, owner, aTurn(session.ID, "hello"))
			return err
		}},
		{"send, after it", func(ctx context.Context) error {
			_, err := s.EndTurn(ctx, begun.Key, anAnswer, conversation.Timing{})
			return err
		}},
		{"history", func(ctx context.Context) error {
			_, err := s.Messages(ctx, owner, session.ID, conversation.MessageQuery{Limit: 50})
			return err
		}},
		{"a message", func(ctx context.Context) error {
			_, err := s.Message(ctx, owner, session.ID, begun.Reply.ID)
			return err
		}},
		{"clear", func(ctx context.Context) error {
			_, err := s.ClearMessages(ctx, owner, session.ID, "clears")
			return err
		}},
		{"usage", func(ctx context.Context) error {
			_, err := s.Usage(ctx, owner, 0, usage.Hour(1<<40))
			return err
		}},
		{"a send that is refused", func(ctx context.Context) error {
			_, err := s.BeginTurn(ctx, owner, aTurn("session_0000000000000000", "hello"))
			wantError(t, "BeginTurn", err, conversation.ErrSessionNotFound)
			return nil
		}},
		{"delete", func(ctx context.Context) error {
			_, err := s.DeleteSession(ctx, owner, session.ID)
			return err
		}},
	}
	for _, sc := range []*script{ // what a server is told once is not an operation's
		createSessionScript, getSessionScript, listSessionsScript, deleteSessionScript, listMessagesScript, getMessageScript,
		clearMessagesScript, beginTurnScript, endTurnScript, getUsageScript,
	} {
		must(t, s.db.ScriptLoad(t.Context(), sc.text).Err())
	}
	w := watch(s)
	for _, op := range operations {
		w.trips.Store(0)
		a := &auth.Admission{Principal: p, Figures: limit.Figures{RequestsPerMinute: 300, TokensPerMinute: 100_000}}
		if err := op.run(auth.WithAdmission(t.Context(), a)); err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
		if n := w.trips.Load(); n != 1 {
			t.Errorf("%s: %d trips, want 1", op.name, n)
		}
	}
}
