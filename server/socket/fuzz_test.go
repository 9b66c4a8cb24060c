package socket

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/service"
)

// emptyStore is a store without sessions.
type emptyStore struct{ conversation.Store }

func (emptyStore) Session(context.Context, conversation.Owner, string) (conversation.Session, error) {
	return conversation.Session{}, conversation.ErrSessionNotFound
}

func (emptyStore) Message(context.Context, conversation.Owner, string, string) (conversation.Message, error) {
	return conversation.Message{}, conversation.ErrSessionNotFound
}

func (emptyStore) BeginTurn(context.Context, conversation.Owner, conversation.NewTurn) (conversation.TurnStart, error) {
	return conversation.TurnStart{}, conversation.ErrSessionNotFound
}

// FuzzFrame checks that any frame of a client gets exactly one response. The response must be valid JSON, with the request's
// id in replyTo.
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
	s, caller := emptyRegistry(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		c := newConnection(s, Handshake{Principal: caller, RequestID: "req_1"}, parleyV1{})
		c.writing = true // so that no writer starts
		c.dialect.handle(c, frame)
		s.work.Wait()
		if len(c.outbox) != 1 {
			t.Fatalf("%q got %d responses, want 1", frame, len(c.outbox))
		}
		var response struct {
			Type    string
			ReplyTo string
			Error   struct{ Code, Message string }
		}
		if err := json.Unmarshal(c.outbox[0], &response); err != nil {
			t.Fatalf("%q got %q: %v", frame, c.outbox[0], err)
		}
		var request struct {
			Type string `json:"type"`
			ID   string `json:"id"`
		}
		if json.Unmarshal(frame, &request) == nil && response.ReplyTo != request.ID {
			t.Fatalf("%q got a response to another request: %q", frame, response.ReplyTo)
		}
		if response.Type == "error" && (response.Error.Code == "" || response.Error.Code == "internal_error") {
			t.Fatalf("%q got %s", frame, c.outbox[0])
		}
	})
}

// emptyRegistry returns a registry on an empty store, and the principal of an admin key.
func emptyRegistry(f *testing.F) (*Registry, auth.Principal) {
	service := service.New(service.Options{
		Store: emptyStore{}, Count: func(s string) int { return len(s) }, Log: slog.New(slog.DiscardHandler),
	})
	const secret = "svc_live_0123456789abcdefghijklmnop" // the declared key needs no store
	keys := auth.NewKeys(nil, auth.Options{AdminKey: secret})
	caller, err := keys.Verify(context.Background(), secret)
	if err != nil {
		f.Fatal(err)
	}
	limits := auth.NewLimits(limit.DefaultTiers())
	s := NewRegistry(Options{
		Conversation: service, Keys: keys, Admission: limits.Admission, Revocation: NewRevocationMonitor(keys.Revalidate),
		Unavailable: noAudit{}, Log: slog.New(slog.DiscardHandler),
	})
	return s, caller
}

// FuzzAISDKFrames checks that any frame of a client gets exactly one error, with the request's id or an empty id. Only an
// abort may get no response.
func FuzzAISDKFrames(f *testing.F) {
	for _, seed := range []string{
		`{"type":"send","requestId":"1","id":"session_0123456789abcdef","trigger":"submit-message","messages":[{"id":"a","role":"user","parts":[{"type":"text","text":"hi"}]}],"headers":{},"body":{}}`,
		`{"type":"send","requestId":"1","id":"session_0123456789abcdef","trigger":"submit-message","messages":[{"role":"user","parts":[{"type":"file"}],"metadata":{"a":1,"a":2}}]}`,
		`{"type":"resume","requestId":"2","id":"session_0123456789abcdef","lastSequence":7}`, `{"type":"abort","requestId":"1"}`,
		`{"type":"send","requestId":"1","id":"session_0123456789abcdef","trigger":"regenerate-message","messages":[{"role":"user","parts":[{"type":"text","text":"\\ud800"}]}]}`,
		`{"type":"ping","requestId":"\"\\ud800"}`, `{"type":1,"requestId":5}`, `null`, `[]`, `{`, ``,
	} {
		f.Add([]byte(seed))
	}
	s, caller := emptyRegistry(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		c := newConnection(s, Handshake{Principal: caller, RequestID: "req_1"}, new(aiSDK))
		c.writing = true // so that no writer starts
		c.dialect.handle(c, frame)
		s.work.Wait()
		request, _ := parseSDKFrame(frame)
		kind, _ := request.text("type")
		id, _ := request.text("requestId")
		if len(c.outbox) == 0 && kind == "abort" {
			return
		}
		var response struct{ Type, RequestID, ErrorText string }
		if len(c.outbox) != 1 || json.Unmarshal(c.outbox[0], &response) != nil {
			t.Fatalf("%q got %q", frame, c.outbox)
		}
		if response.Type != "error" || response.ErrorText == "" || response.ErrorText == "Something went wrong on our side." {
			t.Fatalf("%q got %s", frame, c.outbox[0])
		}
		if response.RequestID != "" && response.RequestID != id {
			t.Fatalf("%q got a response to another request: %q", frame, response.RequestID)
		}
		if len(c.subscriptions) > 0 {
			t.Fatalf("after %q, a request is still open", frame)
		}
	})
}
