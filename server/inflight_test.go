package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
)

// withMaxInFlight returns an option that sets the maximum number of sends in flight.
func withMaxInFlight(n int) option {
	return func(_ *server.Options, o *service.Options) { o.MaxInFlight = n }
}

// countingBegins is a store that counts the calls of BeginTurn.
type countingBegins struct {
	conversation.Store
	calls atomic.Int64
}

func (s *countingBegins) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	s.calls.Add(1)
	return s.Store.BeginTurn(ctx, o, turn)
}

// awaitMetric waits until the metrics have the line.
func (p *parley) awaitMetric(line string) {
	p.t.Helper()
	for late := time.Now().Add(testTimeout); !strings.Contains(p.call("GET", "/metrics", nil).raw, "\n"+line+"\n"); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			p.t.Fatalf("the metrics have no line %q", line)
		}
	}
}

func TestInflightLimit_Reached_SendsGet503AtOnce(t *testing.T) {
	t.Parallel()
	model, store := newDirected(), new(countingBegins)
	p := start(t, model, withMaxInFlight(2), withStore(func(s conversation.Store) conversation.Store { store.Store = s; return store }))
	one, two, other := p.session(), p.session(), p.session()
	keyed := p.later("POST", messages(one), content("first"), "Idempotency-Key", "k")
	first := model.next(t)
	p.begin(two, "second")
	second := model.next(t)
	p.awaitMetric("parley_inflight_sends 2")
	begins := store.calls.Load()

	t.Run("REST", func(t *testing.T) {
		for name, body := range map[string]any{
			"without streaming": content("x"), "with streaming": content("x", "streaming", true), "with an invalid body": "{",
		} {
			a := p.call("POST", messages(other), body)
			checkError(t, a, 503, "service_unavailable", "", "retryAfter")
			if a.header.Get("Retry-After") != "1" {
				t.Errorf("%s: Retry-After is %q", name, a.header.Get("Retry-After"))
			}
		}
	})
	t.Run("parley.v1", func(t *testing.T) {
		s := p.dial()
		s.must(map[string]any{"type": "send", "id": "1", "sessionId": other, "content": "x"})
		if f := s.next("error"); f.ReplyTo != "1" || f.code != "service_unavailable" || !strings.Contains(f.raw, `"retryAfter":1`) {
			t.Errorf("got %s", f.raw)
		}
	})
	t.Run("ai-sdk.v7", func(t *testing.T) {
		s := p.dialSDK(t, adminKey)
		s.must(sendFrame("1", other, chatMessage("user", "x")))
		if f := s.next("1", "error"); !strings.Contains(f.ErrorText, "too many messages in progress") {
			t.Errorf("got %+v", f)
		}
	})
	if n := store.calls.Load(); n != begins {
		t.Errorf("the refused sends called BeginTurn %d times", n-begins)
	}
	p.awaitMetric(`parley_unavailable_total{cause="inflight_limit"} 5`)

	t.Run("repeat of a send in flight", func(t *testing.T) {
		repeat := p.later("POST", messages(one), content("first"), "Idempotency-Key", "k")
		p.awaitMetric("parley_inflight_sends 3")
		if a := p.call("POST", messages(one), content("first"), "Idempotency-Key", "k"); a.status != 503 {
			t.Errorf("a second repeat at the same time got %d", a.status)
		}
		first.say("hello")
		first.end()
		for _, answers := range []<-chan answer{keyed, repeat} {
			if a := within(t, "the reply", answers); a.status != 200 || a.body["content"] != "hello" {
				t.Errorf("got %d %s", a.status, a.raw)
			}
		}
	})
	p.awaitMetric("parley_inflight_sends 1")
	third := p.later("POST", messages(other), content("third"))
	model.next(t).end()
	if a := within(t, "the reply", third); a.status != 200 {
		t.Errorf("with a free slot, a send got %d %s", a.status, a.raw)
	}
	second.end()
	p.awaitMetric("parley_inflight_sends 0")
}

// Refused, invalid, withdrawn and unfinished sends give their slots back too.
func TestInflightLimit_AnyOutcome_SlotGivenBack(t *testing.T) {
	t.Parallel()
	model := newDirected()
	queueing, queued := notifyQueued()
	p := start(t, model, withMaxInFlight(40), queueing)
	session := p.session()
	p.call("POST", messages(session), "{")
	p.call("POST", messages("session_0000000000000000"), content("x"))
	p.begin(session, "first")
	c := model.next(t)
	p.call("POST", messages(session), content("x", "onBusy", "reject"))
	ctx, leave := context.WithCancel(t.Context())
	go func() { _, _ = p.do(ctx, "POST", messages(session), content("leaves the queue")) }()
	s, sdk := p.dial(), p.dialSDK(t, adminKey)
	s.must(map[string]any{"type": "send", "id": "1", "sessionId": session, "content": "leaves with its socket"})
	sdk.must(sendFrame("1", session, chatMessage("user", "leaves with its socket")))
	for range 3 {
		within(t, "a send to be queued", queued)
	}
	p.awaitMetric("parley_inflight_sends 4")
	leave()
	_, _ = s.conn.CloseNow(), sdk.conn.CloseNow()
	p.awaitMetric("parley_inflight_sends 1")
	c.end()
	p.awaitMetric("parley_inflight_sends 0")
}

func TestInflightLimit_OneAccountGreedy_OtherAccountAdmitted(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model, withMaxInFlight(8))
	greedy := []string{"Authorization", "Bearer " + p.key("greedy", auth.Admin)}
	newSession := func(headers ...string) string {
		return p.call("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"}, headers...).body["sessionId"].(string)
	}
	var calls []*call
	for {
		a := p.call("POST", messages(newSession(greedy...)), content("x", "streaming", true), greedy...)
		if a.status == 503 {
			checkError(t, a, 503, "service_unavailable", "", "retryAfter")
			break
		}
		calls = append(calls, model.next(t))
	}
	if len(calls) != 6 {
		t.Errorf("one account got %d of 8 slots, want 6", len(calls))
	}
	p.awaitMetric(`parley_unavailable_total{cause="inflight_share"} 1`)
	p.begin(p.session(), "another account")
	for _, c := range append(calls, model.next(t)) {
		c.end()
	}
}

// The store needs more than 2 s for all endings, but never 2 s for one of them. All callers get their replies.
func TestSend_StoreBusyWithEndings_CallersGetReplies(t *testing.T) {
	t.Parallel()
	const sends, each = 8, 400 * time.Millisecond
	slow := &slowEndings{turn: make(chan struct{}, 1), each: each}
	p := start(t, echo, withStore(func(s conversation.Store) conversation.Store { slow.Store = s; return slow }))
	var answers []<-chan answer
	for i := range sends {
		answers = append(answers, p.later("POST", messages(p.session()), content(fmt.Sprint("number ", i))))
	}
	for _, one := range answers {
		if a := within(t, "a reply", one); a.status != 200 {
			t.Errorf("got %d %s", a.status, a.raw)
		}
	}
}

// slowEndings is a store that stores one ending at a time.
type slowEndings struct {
	conversation.Store
	turn chan struct{} // holds a value during a call of EndTurn
	each time.Duration
}

func (s *slowEndings) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	<-time.After(s.each)
	return s.Store.EndTurn(ctx, key, reply, timing)
}
