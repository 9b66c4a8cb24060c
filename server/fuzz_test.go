package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// emptyStore is a store without a single session.
type emptyStore struct{ conversation.Store }

func (emptyStore) Session(context.Context, conversation.Owner, string) (conversation.Session, error) {
	return conversation.Session{}, conversation.ErrSessionNotFound
}

func (emptyStore) Message(context.Context, conversation.Owner, string, string) (conversation.Message, error) {
	return conversation.Message{}, conversation.ErrSessionNotFound
}

func (emptyStore) BeginTurn(context.Context, conversation.Owner, conversation.NewTurn) (conversation.Begun, error) {
	return conversation.Begun{}, conversation.ErrSessionNotFound
}

// FuzzFrame sends a socket anything: it is answered once, in the protocol's words, to whom it was asked.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"subscribe","id":"1","sessionId":"session_0123456789abcdef","after":"aaaa.msg_0123456789abcdef.5"}`,
		`{"type":"unsubscribe","id":"2","sessionId":"session_0123456789abcdef"}`,
		`{"type":"send","id":"3","sessionId":"session_0123456789abcdef","content":"hi","role":"user","metadata":{},"onBusy":"reject","idempotencyKey":"k"}`,
		`{"type":"cancel","id":"4","sessionId":"session_0123456789abcdef","messageId":"msg_0123456789abcdef"}`,
		`{"type":"ping","id":"5"}`, `{"type":"ping","id":5}`, `{"Type":"ping"}`, `[]`, `{`, ``, `{"type":"ping","id":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	service := conversation.NewService(conversation.Options{
		Store: emptyStore{}, Count: func(s string) int { return len(s) }, Log: slog.New(slog.DiscardHandler),
	})
	const secret = "svc_live_0123456789abcdefghijklmnop" // declared: no store is asked
	keys := auth.NewKeys(nil, auth.Options{AdminKey: secret})
	caller, err := keys.Verify(context.Background(), secret)
	if err != nil {
		f.Fatal(err)
	}
	s := &Server{Options: Options{
		Conversation: service, Keys: keys, Limits: auth.NewLimits(limit.DefaultTiers()), Log: slog.New(slog.DiscardHandler),
	}}
	f.Fuzz(func(t *testing.T, frame []byte) {
		k := newSocket(s, caller, "req_1")
		k.running = true // nothing is to be written
		k.handle(frame)
		s.work.Wait()
		if len(k.outbox) != 1 {
			t.Fatalf("%q is answered %d times", frame, len(k.outbox))
		}
		var answer struct {
			Type    string
			ReplyTo string
			Error   struct{ Code, Message string }
		}
		if err := json.Unmarshal(k.outbox[0], &answer); err != nil {
			t.Fatalf("%q is answered with %q: %v", frame, k.outbox[0], err)
		}
		var asked struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		}
		if json.Unmarshal(frame, &asked) == nil && answer.ReplyTo != asked.ID {
			t.Fatalf("%q is answered to %q", frame, answer.ReplyTo)
		}
		if answer.Type == "error" && (answer.Error.Code == "" || answer.Error.Code == "internal_error") {
			t.Fatalf("%q is answered with %s", frame, k.outbox[0])
		}
	})
}
