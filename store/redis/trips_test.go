package redis

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/conversation/window"
)

// trips is a hook of the go-redis client. It counts round trips (n), each of them a command or a pipeline, and commands.
type trips struct{ n, commands atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n.Add(1)
		h.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		h.n.Add(1)
		h.commands.Add(int64(len(commands)))
		return next(ctx, commands)
	}
}

// TestOperations_OneRoundTripEach counts the round trips of each operation, with the admission of its request. A send consists of
// two operations: one before the call to the model, and one after the reply.
func TestOperations_OneRoundTripEach(t *testing.T) {
	s := newStore(t)
	owner := conversation.Owner{Account: newAccount(), Mode: conversation.Live}
	p := newKey(t, s, auth.Owner{Account: owner.Account, Mode: auth.Live})
	session := newSession(t, s, owner)
	var begun conversation.TurnStart
	operations := []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"create a session", func(ctx context.Context) error {
			_, err := s.CreateSession(ctx, owner, conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
			return err
		}},
		{"get a session", func(ctx context.Context) error {
			_, err := s.Session(ctx, owner, session.ID)
			return err
		}},
		{"list sessions", func(ctx context.Context) error {
			_, err := s.Sessions(ctx, owner, conversation.SessionQuery{Limit: 20})
			return err
		}},
		{"send, before the model call", func(ctx context.Context) (err error) {
			begun, err = s.BeginTurn(ctx, owner, aTurn(session.ID, "hello"))
			return err
		}},
		{"send, after the model call", func(ctx context.Context) error {
			_, err := s.EndTurn(ctx, begun.Key, anAnswer, conversation.Timing{})
			return err
		}},
		{"list messages", func(ctx context.Context) error {
			_, err := s.Messages(ctx, owner, session.ID, conversation.MessageQuery{Limit: 50})
			return err
		}},
		{"get a message", func(ctx context.Context) error {
			_, err := s.Message(ctx, owner, session.ID, begun.Reply.ID)
			return err
		}},
		{"read the context", func(ctx context.Context) error {
			_, err := s.Context(ctx, owner, session.ID, 10)
			return err
		}},
		{"read the summary", func(ctx context.Context) error {
			_, _, err := s.Summary(ctx, owner, session.ID)
			return err
		}},
		{"read messages by their ids", func(ctx context.Context) error {
			_, err := s.MessagesByID(ctx, owner, session.ID, []string{begun.Message.ID, begun.Reply.ID})
			return err
		}},
		{"save a summary", func(ctx context.Context) error {
			return s.SaveSummary(ctx, owner, session.ID, "", conversation.Summary{Text: "so far", Last: begun.Reply.ID}, conversation.Usage{})
		}},
		{"store vectors", func(ctx context.Context) error {
			return s.SetVectors(ctx, owner, session.ID, []conversation.ExchangeVector{{Reply: begun.Reply.ID, Vector: window.Vector("x")}})
		}},
		{"clear messages", func(ctx context.Context) error {
			_, err := s.ClearMessages(ctx, owner, session.ID, "clears")
			return err
		}},
		{"open a socket", func(ctx context.Context) error {
			_, err := s.OpenSocket(ctx, auth.Owner{Account: owner.Account, Mode: auth.Live})
			return err
		}},
		{"read the usage", func(ctx context.Context) error {
			_, err := s.Usage(ctx, owner, 0, usage.Hour(1<<40))
			return err
		}},
		{"send, refused", func(ctx context.Context) error {
			_, err := s.BeginTurn(ctx, owner, aTurn("session_0000000000000000", "hello"))
			wantError(t, "BeginTurn", err, conversation.ErrSessionNotFound)
			return nil
		}},
		{"delete a session", func(ctx context.Context) error {
			_, err := s.DeleteSession(ctx, owner, session.ID)
			return err
		}},
	}
	for _, sc := range []*script{ // loading a script is not part of an operation
		createSessionScript, getSessionScript, listSessionsScript, deleteSessionScript, listMessagesScript, getMessageScript,
		clearMessagesScript, beginTurnScript, endTurnScript, getUsageScript,
		getContextScript, getSummaryScript, getMessagesScript, saveSummaryScript, setVectorsScript, openSocketScript,
	} {
		must(t, s.db.ScriptLoad(t.Context(), sc.compiled().text).Err())
	}
	var counted trips
	s.db.AddHook(&counted)
	for _, op := range operations {
		counted.n.Store(0)
		a := &auth.Admission{Principal: p, Limits: limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 100_000}}
		if err := op.run(auth.WithAdmission(t.Context(), a)); err != nil {
			t.Errorf("%s: %v", op.name, err)
		}
		if n := counted.n.Load(); n != 1 {
			t.Errorf("%s: %d round trips, want 1", op.name, n)
		}
	}
}
