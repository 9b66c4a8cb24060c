package server_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"parley/conversation"
	"parley/server/api"
	"parley/server/transport"
)

// unavailableErrors holds an error for each cause of a 503.
var unavailableErrors = map[string]error{
	"inflight_limit": conversation.ErrInflightLimit, "inflight_share": conversation.ErrInflightShare,
	"cancel_pending": conversation.ErrCancelPending, "draining": conversation.ErrDraining,
	"connections": transport.ErrFull, "client_connections": transport.ErrClientFull,
	"pages_busy": api.ErrPagesBusy, "unread_responses": api.ErrUnread, "model_unreachable": api.ErrModel,
	"ending_not_stored": conversation.ErrEndingNotStored, "reply_lost": conversation.ErrReplyLost, "turn_unknown": conversation.ErrTurnUnknown,
	"store_busy":    fmt.Errorf("%w: pool timeout", conversation.ErrStoreBusy),
	"store_timeout": conversation.Unavailable(fmt.Errorf("reading: %w", context.DeadlineExceeded)),
	"store_error":   conversation.Unavailable(errors.New("disk full")),
	"store_full":    fmt.Errorf("%w: write /secret/parley.db", conversation.ErrStoreFull),
	"store_moved":   conversation.ErrStoreMoved, "store_damaged": conversation.ErrStoreDamaged, "store_failed": conversation.ErrStoreFailed,
	"caller_left": context.Canceled,
}

// failing is a store that refuses all sends with an error that the test sets.
type failing struct {
	conversation.Store
	mu  sync.Mutex
	err error // guarded by mu
}

func (s *failing) BeginTurn(context.Context, conversation.Owner, conversation.NewTurn) (conversation.TurnStart, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return conversation.TurnStart{}, s.err
}

func (s *failing) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func TestUnavailable_EachCause_CountedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	if want, got := slices.Sorted(maps.Keys(unavailableErrors)), slices.Sorted(slices.Values(api.Causes())); !slices.Equal(want, got) {
		t.Fatalf("the test knows the causes %q; the server has %q", want, got)
	}
	guide, err := os.ReadFile("../web/guides/operation.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range api.Causes() {
		if !strings.Contains(string(guide), "`"+cause+"`") {
			t.Errorf("the guide on operation does not describe the cause %s", cause)
		}
	}
	var log lockedBuilder
	store := new(failing)
	p := start(t, echo, logTo(&log), withStore(func(s conversation.Store) conversation.Store { store.Store = s; return store }))
	session := p.session()
	socket, sdk := p.dial(), p.dialSDK(t, adminKey)
	for cause, err := range unavailableErrors {
		store.set(err)
		for range 2 {
			if a := p.call("POST", messages(session), content("hello")); a.status != 503 || code(a.body) != "service_unavailable" || a.header.Get("Retry-After") != "1" {
				t.Errorf("%s: got %d %s, Retry-After %q", cause, a.status, a.raw, a.header.Get("Retry-After"))
			}
		}
		socket.must(map[string]any{"type": "send", "id": cause, "sessionId": session, "content": "hello"})
		if f := socket.next("error"); f.ReplyTo != cause || f.code != "service_unavailable" {
			t.Errorf("%s: parley.v1 got %+v", cause, f)
		}
		sdk.must(sendFrame(cause, session, chatMessage("user", "hello")))
		sdk.next(cause, "error")
		p.awaitMetric(fmt.Sprintf(`parley_unavailable_total{cause=%q} 4`, cause))
		lines := strings.Count(log.String(), `msg="service unavailable"`) // each line has its cause
		if n := strings.Count(log.String(), "cause="+cause+" "); n != 1 && cause != api.CallerLeft {
			t.Errorf("%s: %d log lines of %d have the cause, want 1", cause, n, lines)
		}
	}
	if strings.Contains(log.String(), "cause="+api.CallerLeft) {
		t.Error("a caller that has left gets a log line")
	}
}

// lockedBuilder is a strings.Builder for several goroutines.
type lockedBuilder struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
