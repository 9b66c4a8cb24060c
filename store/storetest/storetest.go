package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// Backend is a store under test. Several tests may use it at the same time.
type Backend struct {
	Conversation conversation.Store
	Keys         auth.Store
}

// timeout is the longest time that a test waits for an event. Only a hang reaches it.
const timeout = time.Minute

// Run runs the suite. The tests TestStore… of each backend call Run, so the name of a group selects it for every backend, for
// example `go test ./store/... -run TestStore/messages`. Run calls open once for each test. open must register its cleanup with
// t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	groups := []group{
		{"sessions", sessionTests()},
		{"settings", settingsTests()},
		{"messages", messageTests()},
		{"turns", turnTests()},
		{"context", contextTests()},
		{"summary", summaryTests()},
		{"queue", queueTests()},
		{"idempotency", idempotencyTests()},
		{"clear", clearTests()},
		{"journal", journalTests()},
		{"keys", keyTests()},
		{"admission", admissionTests()},
		{"tickets", ticketTests()},
		{"sockets", socketTests()},
		{"audit", auditTests()},
		{"usage", usageTests()},
		{"quotas", quotaTests()},
		{"concurrency", concurrencyTests()},
	}
	for _, g := range groups {
		g.run(t, open)
	}
}

type group struct {
	name  string
	tests []test
}

func (g group) run(t *testing.T, open func(t *testing.T) Backend) {
	t.Run(g.name, func(t *testing.T) {
		for _, test := range g.tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				b := open(t)
				ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
				defer cancel()
				test.run(t, &subject{
					ctx: ctx, store: b.Conversation, keys: b.Keys,
					owner: conversation.Owner{Account: "account " + conversation.RandomText(12), Mode: conversation.Live},
				})
			})
		}
	})
}

type test struct {
	name string
	run  func(t *testing.T, s *subject)
}

// subject is the store under test, with the owner of the data that the test creates.
type subject struct {
	ctx   context.Context
	store conversation.Store
	keys  auth.Store
	owner conversation.Owner
}

// as returns a copy of the subject with another owner.
func (s *subject) as(owner conversation.Owner) *subject {
	other := *s
	other.owner = owner
	return &other
}

func newUser() string { return conversation.UserPrefix + conversation.RandomText(16) }

// plain returns a new session with a random user and the default configuration.
func plain() conversation.NewSession {
	return conversation.NewSession{UserID: newUser(), Context: conversation.DefaultContextConfig}
}

func (s *subject) create(t *testing.T, session conversation.NewSession) conversation.Session {
	t.Helper()
	created, err := s.store.CreateSession(s.ctx, s.owner, session)
	must(t, err, "CreateSession")
	same(t, "replayed", created.Replayed, false)
	return created.Session
}

func (s *subject) session(t *testing.T, id string) conversation.Session {
	t.Helper()
	session, err := s.store.Session(s.ctx, s.owner, id)
	must(t, err, "Session")
	return session
}

// history returns all messages of a session, oldest first.
func (s *subject) history(t *testing.T, id string) []conversation.Message {
	t.Helper()
	var all []conversation.Message
	for query := (conversation.MessageQuery{Ascending: true, Limit: 10_000}); ; query.From = all[len(all)-1].ID {
		page, err := s.store.Messages(s.ctx, s.owner, id, query)
		must(t, err, "Messages")
		if all = append(all, page.Messages...); !page.More {
			return all
		}
	}
}

func (s *subject) message(t *testing.T, sessionID, id string) conversation.Message {
	t.Helper()
	m, err := s.store.Message(s.ctx, s.owner, sessionID, id)
	must(t, err, "Message")
	return m
}

// question returns a turn with a user message of 10 tokens.
func question(sessionID, content string) conversation.NewTurn {
	return conversation.NewTurn{
		SessionID: sessionID, Role: conversation.User, Content: content, Tokens: 10, OnBusy: conversation.Enqueue,
		Waiter: conversation.RandomText(16),
	}
}

// answer returns a completed reply of 5 tokens.
func answer(content string) conversation.Message {
	return conversation.Message{
		Content: content, Tokens: 5, Status: stream.Completed, FinishReason: "stop",
		Usage: &conversation.Usage{Prompt: 17, Completion: 5, Total: 22},
	}
}

// begin begins a turn. It fails the test if the session is busy.
func (s *subject) begin(t *testing.T, turn conversation.NewTurn) conversation.TurnStart {
	t.Helper()
	begun, err := s.store.BeginTurn(s.ctx, s.owner, turn)
	must(t, err, "BeginTurn")
	if begun.Queued != nil {
		t.Fatalf("BeginTurn of %q: queued, want a free session", turn.Content)
	}
	return begun
}

// queue queues a turn. It fails the test if the session is free.
func (s *subject) queue(t *testing.T, turn conversation.NewTurn) *conversation.Queued {
	t.Helper()
	begun, err := s.store.BeginTurn(s.ctx, s.owner, turn)
	must(t, err, "BeginTurn")
	if begun.Queued == nil {
		t.Fatalf("BeginTurn of %q: begun, want a busy session", turn.Content)
	}
	if diff := cmp.Diff(conversation.TurnStart{Queued: begun.Queued}, begun); diff != "" {
		t.Fatalf("BeginTurn of %q: queued, but other fields are set (-want +got):\n%s", turn.Content, diff)
	}
	return begun.Queued
}

func (s *subject) end(t *testing.T, key conversation.TurnKey, reply conversation.Message) conversation.Message {
	t.Helper()
	ended, err := s.store.EndTurn(s.ctx, key, reply, timing)
	must(t, err, "EndTurn")
	return ended
}

// exchange begins and ends a turn. It returns the message and the reply of the turn.
func (s *subject) exchange(t *testing.T, sessionID, content string) (asked, reply conversation.Message) {
	t.Helper()
	begun := s.begin(t, question(sessionID, content))
	return begun.Message, s.end(t, begun.Key, answer("to "+content))
}

// granted waits until the store grants the session to the waiter.
func granted(t *testing.T, queued *conversation.Queued) {
	t.Helper()
	select {
	case <-queued.Granted:
	case <-time.After(timeout):
		t.Fatal("the session was not granted to the waiter")
	}
}

// awaitTurn begins a turn like a send. While the turn is queued, awaitTurn waits until the session is granted, and tries again.
func (s *subject) awaitTurn(turn conversation.NewTurn) (conversation.TurnStart, error) {
	for {
		begun, err := s.store.BeginTurn(s.ctx, s.owner, turn)
		if err != nil || begun.Queued == nil {
			return begun, err
		}
		select {
		case <-begun.Queued.Granted:
		case <-time.After(timeout):
			return begun, fmt.Errorf("the turn of %q was not granted the session", turn.Content)
		}
	}
}

func must(t *testing.T, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// wantError checks that got is want or wraps it.
func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: error %v, want %v", what, got, want)
	}
}

// same checks that two values are equal. It compares JSON by value, not by text.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	isJSON := func(p cmp.Path) bool { return p.Last().Type() == reflect.TypeFor[json.RawMessage]() }
	meaning := cmp.Transformer("json", func(raw json.RawMessage) (v any) {
		if len(raw) > 0 && json.Unmarshal(raw, &v) != nil {
			return string(raw)
		}
		return v
	})
	empty := cmp.FilterPath(func(p cmp.Path) bool { return !isJSON(p) }, cmpopts.EquateEmpty())
	if diff := cmp.Diff(want, got, cmp.FilterPath(isJSON, meaning), empty); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// inPrompt returns the number of tokens that a message takes in a prompt. tokens is the number of tokens in its content.
func inPrompt(tokens int) int { return tokens + window.MessageOverhead }

func ids(messages []conversation.Message) []string {
	var all []string
	for _, m := range messages {
		all = append(all, m.ID)
	}
	return all
}
