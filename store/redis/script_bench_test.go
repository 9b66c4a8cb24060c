package redis

import (
	"context"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
)

// BenchmarkScripts reports the time that Redis spends on one call of a script (redis-µs/op, from INFO commandstats). Redis spends
// most of the time on definitions from the libraries, before the first line of the operation. So the result shows the cost of a
// larger library.
func BenchmarkScripts(b *testing.B) {
	server := redistest.Single(b)
	s, err := Open(b.Context(), server.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	owner := conversation.Owner{Account: "a", Mode: conversation.Live}
	key := aKey(auth.Owner{Account: "a", Mode: auth.Live})
	if _, err := s.CreateKey(b.Context(), key, ""); err != nil {
		b.Fatal(err)
	}
	principal := auth.Principal{Account: "a", Mode: auth.Live, KeyID: key.ID, Secret: key.Secrets[0].Hash}
	figures := limit.TierLimits{RequestsPerMinute: limit.MaxLimit, TokensPerMinute: limit.MaxLimit}
	admitted := func() context.Context {
		return auth.WithAdmission(b.Context(), &auth.Admission{Principal: principal, Limits: figures})
	}
	created, err := s.CreateSession(b.Context(), owner, conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
	if err != nil {
		b.Fatal(err)
	}
	id := created.Session.ID
	for _, op := range []struct {
		name string
		run  func() error
	}{
		{"admit", func() error { return s.Admit(admitted()) }},
		{"touch_key", func() error {
			return s.TouchKeys(b.Context(), []auth.KeyUse{{Owner: key.Owner, KeyID: key.ID}})
		}},
		{"put_ticket and take_ticket", func() error {
			hash := auth.HashOf("a ticket")
			if _, err := s.PutTicket(b.Context(), hash, auth.Ticket{Secret: key.Secrets[0].Hash}); err != nil {
				return err
			}
			_, err := s.TakeTicket(b.Context(), hash)
			return err
		}},
		{"heartbeat", func() error { return s.beat(b.Context()) }},
		{"get_session", func() error { _, err := s.Session(b.Context(), owner, id); return err }},
		{"get_session admitted", func() error { _, err := s.Session(admitted(), owner, id); return err }},
		{"list_messages", func() error {
			_, err := s.Messages(b.Context(), owner, id, conversation.MessageQuery{Limit: 1})
			return err
		}},
		{"poll", func() error {
			_, err := s.Poll(b.Context(), []conversation.Followed{{Owner: owner, SessionID: id}})
			return err
		}},
		{"leave_queue", func() error { return s.LeaveQueue(b.Context(), owner, id, "nobody") }},
		{"begin_turn refused", func() error {
			_, err := s.BeginTurn(b.Context(), owner, aTurn("session_0000000000000000", "?"))
			if err == conversation.ErrSessionNotFound {
				return nil
			}
			return err
		}},
		{"begin_turn and end_turn", func() error {
			begun, err := s.BeginTurn(admitted(), owner, aTurn(id, "what is this?"))
			if err != nil {
				return err
			}
			_, err = s.EndTurn(b.Context(), begun.Key, anAnswer, conversation.Timing{})
			return err
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			if err := op.run(); err != nil { // afterwards the server knows the script
				b.Fatal(err)
			}
			server.Do("CONFIG", "RESETSTAT")
			for b.Loop() {
				if err := op.run(); err != nil {
					b.Fatal(err)
				}
			}
			reportRedis(b, server)
		})
	}
}
