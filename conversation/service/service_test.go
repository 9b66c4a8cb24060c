package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/conversation/usage"
	"parley/store/embedded"
	"parley/stream"
	"parley/stream/models"
)

var owner = conversationtest.Owner

func ofTokens(n int) string { return strings.Repeat("four", n) }

// small is a window of 100 tokens: 25 are kept for the reply and 3 are the prompt's overhead. That leaves 72 for
// messages, each with an overhead of 4.
func small(compression bool) conversation.ContextConfig {
	return conversation.ContextConfig{MaxTokens: 100, CompressionEnabled: compression, RetentionPolicy: conversation.FIFO}
}

func TestSession_Position_BeforeLiveReply(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	id := n.NewSession()
	position := func() stream.Position {
		t.Helper()
		_, p, err := n.Session(t.Context(), owner, id)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := position(); p != (stream.Position{}) {
		t.Errorf("the position of an empty session is %+v", p)
	}
	sent := n.Begun(id, "hello")
	c := model.Next(t)
	if p := position(); p != sent.Position {
		t.Errorf("during a reply the position is %+v, want %+v", p, sent.Position)
	}
	c.End()
	if _, err := sent.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := position(); p != stream.After(sent.Reply.ID) {
		t.Errorf("after the reply the position is %+v", p)
	}
	_, _, err := n.Session(t.Context(), owner, "session_0000000000000000")
	conversationtest.Fails(t, "an unknown session", err, conversation.ErrSessionNotFound)
}

// A viewer that starts at the position of a page misses no text and sees no text twice.
func TestHistory_LiveReply_PositionAfterItsText(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	id := n.NewSession()
	sent := n.Begun(id, "hello")
	c := model.Next(t)
	c.Write("Half of")
	page, position, err := n.History(t.Context(), owner, id, conversation.MessageQuery{Limit: 10})
	if err != nil || page.Messages[0].Content != "Half of" || *position != (stream.Position{ID: sent.Reply.ID, Offset: 7}) {
		t.Fatalf("History returned %+v at %v: %v", page.Messages, position, err)
	}
	v := n.Watch(id, position)
	c.Write(" a reply.")
	m, at, err := n.Message(t.Context(), owner, id, sent.Reply.ID)
	if err != nil || m.Content != "Half of a reply." || at.Offset != 16 {
		t.Errorf("Message returned %+v at %v: %v", m, at, err)
	}
	c.End()
	if _, text := v.Until(stream.Ended); text != " a reply." {
		t.Errorf("the viewer is shown %q", text)
	}
	for _, query := range []conversation.MessageQuery{{Limit: 10}, {Limit: 10, Ascending: true}, {From: sent.Position.ID, Limit: 10, Ascending: true}} {
		page, position, err := n.History(t.Context(), owner, id, query)
		if err != nil || position == nil || *position != stream.After(sent.Reply.ID) || page.More {
			t.Errorf("the query %+v returned the position %v, error %v", query, position, err)
		}
	}
	for _, query := range []conversation.MessageQuery{{Limit: 1, Ascending: true}, {From: sent.Reply.ID, Limit: 10}} {
		if _, position, err := n.History(t.Context(), owner, id, query); err != nil || position != nil {
			t.Errorf("a page without the newest message has the position %v, error %v", position, err)
		}
	}
	if m, at, err := n.Message(t.Context(), owner, id, sent.Reply.ID); err != nil || m.Status != stream.Completed || at != stream.After(sent.Reply.ID) {
		t.Errorf("Message returned %+v at %v: %v", m, at, err)
	}
	_, _, err = n.Message(t.Context(), owner, id, "msg_0000000000000000")
	conversationtest.Fails(t, "an unknown message", err, conversation.ErrMessageNotFound)
	_, _, err = n.History(t.Context(), owner, "session_0000000000000000", conversation.MessageQuery{Limit: 1})
	conversationtest.Fails(t, "an unknown session", err, conversation.ErrSessionNotFound)
}

// stale is a store. Its next Message returns an older version of a message.
type stale struct {
	conversation.Store
	message *conversation.Message // the older version; returned once
}

func (s *stale) Message(ctx context.Context, o conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	if m := s.message; m != nil {
		s.message = nil
		return *m, nil
	}
	return s.Store.Message(ctx, o, sessionID, messageID)
}

func TestMessage_ReplyEndsDuringRead_FinalTextReturned(t *testing.T) {
	store := &stale{}
	n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { store.Store, o.Store = o.Store, store })
	id := n.NewSession()
	reply := n.Ask(id, "hello")
	old := reply.AsBegun()
	store.message = &old
	if m, at, err := n.Message(t.Context(), owner, id, reply.ID); err != nil || m.Content != reply.Content || at != stream.After(reply.ID) {
		t.Errorf("Message returned %+v at %v: %v", m, at, err)
	}
}

func TestMessage_OtherNodesReply_JournalledText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		id := a.NewSession()
		sent := a.Begun(id, "hello")
		c := model.Next(t)
		c.Write("Half of")
		time.Sleep(time.Second)
		if m, at, err := b.Message(t.Context(), owner, id, sent.Reply.ID); err != nil || m.Content != "Half of" || at.Offset != 7 {
			t.Errorf("Message returned %+v at %v: %v", m, at, err)
		}
		c.End()
	})
}

func TestSend_ContextOverflow_SessionUnchanged(t *testing.T) {
	n := conversationtest.Start(t, conversationtest.ModelFunc(func(_ context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
		write([]byte(ofTokens(20)))
		return stream.Result{FinishReason: "stop"}, nil
	}))
	wantOverflow := func(id string, tokens, current int) {
		t.Helper()
		before := n.Get(id)
		m := conversationtest.Message(id, ofTokens(tokens))
		_, previewErr := n.Preview(t.Context(), owner, id, m.Role, m.Content)
		for name, err := range map[string]error{"a send": n.SendAndWait(t.Context(), m).Err, "a preview": previewErr} {
			if overflow, ok := errors.AsType[*conversation.OverflowError](err); !ok || *overflow != (conversation.OverflowError{CurrentTokens: current, MaxTokens: 100}) {
				t.Errorf("%s of %d tokens returned %v", name, tokens, err)
			}
		}
		if after := n.Get(id); !cmp.Equal(after, before) {
			t.Errorf("the session changed: %+v", after)
		}
	}
	for _, compression := range []bool{true, false} {
		id := n.NewSession(small(compression))
		wantOverflow(id, 69, 69+4+3+25)
		wantOverflow(id, 2500, 2500+4+3+25)
		n.Ask(id, ofTokens(68)) // takes exactly 72 tokens
	}
	id := n.NewSession(small(false))
	n.Ask(id, ofTokens(20)) // uses 48 of 72 tokens
	wantOverflow(id, 21, 48+25+3+25)
	n.Ask(id, ofTokens(20)) // uses 72 of 72 tokens
	wantOverflow(id, 1, 48+48+5+3+25)
	if count, err := n.Clear(t.Context(), owner, id); err != nil || count != 4 {
		t.Fatal(count, err)
	}
	n.Ask(id, ofTokens(60))
}

func TestPreview_ThenSend_SameContextReport(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	id := n.NewSession(small(true))
	exchange := func(text, reply string) conversation.Message {
		t.Helper()
		replied := n.Later(conversationtest.Message(id, text))
		c := model.Next(t)
		c.Write(reply)
		c.End()
		return conversationtest.Within(t, "the reply", replied).Message
	}
	preview := func(tokens int) conversation.Preview {
		t.Helper()
		before, messages := n.Get(id), n.All(id)
		p, err := n.Preview(t.Context(), owner, id, conversation.User, ofTokens(tokens))
		if err != nil || !cmp.Equal(n.Get(id), before) || !cmp.Equal(n.All(id), messages) {
			t.Fatalf("Preview returned %v, or it changed the session", err)
		}
		return p
	}
	if p := preview(20); len(p.Messages) != 1 || p.Messages[0].Decision != "kept" || p.Messages[0].Tokens != 24 || p.Messages[0].ID != "" {
		t.Errorf("the preview of an empty session is %+v", p)
	}
	exchange("one "+ofTokens(10), "two "+ofTokens(10)) // 15 tokens each
	exchange("5555"+ofTokens(5), "6666"+ofTokens(5))   // 10 tokens each
	h, p := n.All(id), preview(10)
	for i, m := range p.Messages[:len(p.Messages)-1] {
		if m.ID != h[i].ID {
			t.Errorf("message %d is %+v", i, m)
		}
	}
	want, got := preview(40).Context, *exchange(ofTokens(40), "ok").Context
	want.Kept.Last = got.Kept.Last // the new message has an id now
	if want != got || got.Dropped.Count == 0 {
		t.Errorf("the report of the preview is %+v, and of the reply %+v", want, got)
	}
	_, err := n.Preview(t.Context(), owner, "session_0000000000000000", conversation.User, "x")
	conversationtest.Fails(t, "an unknown session", err, conversation.ErrSessionNotFound)
}

func TestPreview_LiveReply_JournalledTextCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n := conversationtest.Start(t, model)
		id := n.NewSession(small(false))
		n.Begun(id, ofTokens(10))
		c := model.Next(t)
		c.Write(ofTokens(40))
		time.Sleep(time.Second) // journalled
		p, err := n.Preview(t.Context(), owner, id, conversation.User, ofTokens(5))
		if err != nil || p.Context.PromptTokens != 3+14+44+9 {
			t.Errorf("the report of the preview is %+v %v", p.Context, err)
		}
		_, err = n.Preview(t.Context(), owner, id, conversation.User, ofTokens(20))
		if overflow, ok := errors.AsType[*conversation.OverflowError](err); !ok || overflow.CurrentTokens != 3+14+44+24+25 {
			t.Errorf("a message that does not fit beside the live reply: %v", err)
		}
		c.End()
	})
}

// TestPreview_LiveReplyFillsWindow_PriorityCounts has a history that fits the window until the live reply has its text.
// The window of 200 tokens has 147 for messages.
func TestPreview_LiveReplyFillsWindow_PriorityCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n := conversationtest.Start(t, model)
		id := n.NewSession(conversation.ContextConfig{MaxTokens: 200, CompressionEnabled: true, RetentionPolicy: conversation.Priority})
		for _, metadata := range []string{`{"priority":"high"}`, ""} {
			m := conversationtest.Message(id, ofTokens(20))
			if metadata != "" {
				m.Metadata = json.RawMessage(metadata)
			}
			replied := n.Later(m)
			c := model.Next(t)
			c.Write("yes!")
			c.End()
			conversationtest.Within(t, "the reply", replied)
		}
		n.Begun(id, "live")
		c := model.Next(t)
		c.Write(ofTokens(80))
		time.Sleep(time.Second) // journalled
		p, err := n.Preview(t.Context(), owner, id, conversation.User, ofTokens(5))
		if err != nil || len(p.Messages) != 7 {
			t.Fatalf("the preview is %+v %v", p, err)
		}
		if first, third := p.Messages[0], p.Messages[2]; first.Decision != "kept" || first.Reason != "its priority" || third.Decision != "dropped" {
			t.Errorf("the message of high priority is %+v, the next %+v", first, third)
		}
		c.End()
	})
}

// TestPreview_ManyBytes_OlderMessagesDropped has 9 MiB of metadata in a window that holds all messages. The history of
// the context then lacks the oldest exchange.
func TestPreview_ManyBytes_OlderMessagesDropped(t *testing.T) {
	for policy, compression := range map[conversation.RetentionPolicy]bool{conversation.FIFO: false, conversation.Priority: true, conversation.Semantic: false} {
		n := conversationtest.Start(t, conversationtest.Echo)
		id := n.NewSession(conversation.ContextConfig{MaxTokens: 1_000_000, CompressionEnabled: compression, RetentionPolicy: policy})
		for range 9 {
			m := conversationtest.Message(id, "x")
			m.Metadata = json.RawMessage(`{"a":"` + strings.Repeat("b", 1<<20) + `"}`)
			conversationtest.Within(t, "the reply", n.Later(m))
		}
		p, err := n.Preview(t.Context(), owner, id, conversation.User, "x")
		if err != nil || p.Context.Kept.Count != 17 || p.Context.Dropped.Count != 2 {
			t.Errorf("policy %s: the report is %+v %v, want 17 messages kept and 2 dropped", policy, p.Context, err)
		}
	}
}

func TestExpiry_ActiveSession_GoneAfter24h(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := conversationtest.Start(t, conversationtest.Echo)
		id := n.NewSession()
		for range 23 {
			time.Sleep(time.Hour)
			n.Ask(id, "still here")
		}
		time.Sleep(time.Hour - time.Millisecond)
		n.Get(id)
		time.Sleep(time.Millisecond)
		_, _, err := n.Session(t.Context(), owner, id)
		conversationtest.Fails(t, "the session", err, conversation.ErrSessionNotFound)
		_, _, err = n.Message(t.Context(), owner, id, "msg_0000000000000000")
		conversationtest.Fails(t, "a message", err, conversation.ErrSessionNotFound)
		conversationtest.Fails(t, "a send", n.SendAndWait(t.Context(), conversationtest.Message(id, "x")).Err, conversation.ErrSessionNotFound)
		conversationtest.Fails(t, "a deletion", n.DeleteSession(t.Context(), owner, id), conversation.ErrSessionNotFound)
	})
}

func TestExpiry_MidReply_ReplyStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n := conversationtest.Start(t, model)
		id := n.NewSession()
		const before = 10 * time.Second
		time.Sleep(conversation.Lifetime - before)
		v := n.Watch(id, nil)
		replied := n.Later(conversationtest.Message(id, "hello"))
		c := model.Next(t)
		c.Write("Half of")
		began := time.Now()
		for event := v.Event(); event.Kind != stream.Expired; event = v.Event() {
			if event.Kind == stream.Ended {
				t.Errorf("the end of the reply was shown: %s", event.Ending.Message)
			}
		}
		if took := time.Since(began); took != before {
			t.Errorf("the session expired after %v", took)
		}
		<-c.Closed
		conversationtest.Fails(t, "the send", (<-replied).Err, conversation.ErrSessionNotFound)
	})
}

// flaky is a store. The first calls of its RemoveExpired fail.
type flaky struct {
	conversation.Store
	failures int // number of calls that will still fail
}

func (s *flaky) RemoveExpired(ctx context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	if s.failures--; s.failures >= 0 {
		return nil, 0, errors.New("planted")
	}
	return s.Store.RemoveExpired(ctx)
}

func TestExpiry_RemovalFails_Retried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) {
			o.Store, o.Log = &flaky{o.Store, 2}, slog.New(slog.NewTextHandler(&log, nil))
		})
		id := n.NewSession()
		v := n.Watch(id, nil)
		time.Sleep(conversation.Lifetime + time.Millisecond)
		if event, ok := v.Poll(); !ok || event.Kind != stream.Expired {
			t.Errorf("the viewer is shown %+v", event)
		}
		if lines := strings.Count(log.String(), "expired sessions could not be removed"); lines != 2 {
			t.Errorf("the log has %d lines: %s", lines, log.String())
		}
	})
}

// clocked is a store with a clock that is ahead of time.Now by the duration ahead.
type clocked struct {
	conversation.Store
	ahead *atomic.Int64
	calls atomic.Int64 // calls of RemoveExpired
	id    atomic.Value // a string: the id of the only session
}

func (s *clocked) RemoveExpired(ctx context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	s.calls.Add(1)
	id, _ := s.id.Load().(string)
	session, err := s.Store.Session(ctx, owner, id)
	if err != nil {
		return nil, 0, nil
	}
	if session.ExpiresAt > conversation.TimeOf(time.Now().Add(time.Duration(s.ahead.Load()))) {
		return nil, session.ExpiresAt, nil
	}
	_, err = s.Store.DeleteSession(ctx, owner, id)
	return []conversation.OwnedSession{{Owner: owner, Session: session}}, 0, err
}

// The clock of the machine jumps to a time after the expiry: it was set, or the machine was suspended. In one case, the
// clock jumps before a call of RemoveExpired has returned the expiry time of the session, in the other case afterwards.
func TestExpiry_ClockJumpsAhead_ViewerToldWithin1s(t *testing.T) {
	for _, age := range []time.Duration{10 * time.Second, 90 * time.Second} {
		t.Run(age.String(), func(t *testing.T) { jumpClock(t, age) })
	}
}

// jumpClock sets the clock ahead when a session has the given age. Its viewer must be told within a second.
func jumpClock(t *testing.T, age time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		store := &clocked{ahead: &ahead}
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) {
			store.Store, o.Store = o.Store, store
			o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())).Round(0) }
		})
		id := n.NewSession()
		store.id.Store(id)
		v := n.Watch(id, nil)
		time.Sleep(age)
		ahead.Store(int64(25 * time.Hour))
		jumped := time.Now()
		if event := v.Event(); event.Kind != stream.Expired || time.Since(jumped) > time.Second {
			t.Errorf("%v after the clock jumped, the viewer was shown %+v", time.Since(jumped), event)
		}
	})
}

// The clock of this node is ahead of the store's clock, so the store does not remove the session yet.
func TestExpiry_StoresClockBehind_OneCallASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &clocked{ahead: new(atomic.Int64)}
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) {
			store.Store, o.Store = o.Store, store
			o.Now = func() time.Time { return time.Now().Add(25 * time.Hour).Round(0) }
		})
		store.id.Store(n.NewSession())
		time.Sleep(90 * time.Second)
		before := store.calls.Load()
		time.Sleep(100 * time.Second)
		if calls := store.calls.Load() - before; calls < 99 || calls > 101 {
			t.Errorf("%d calls of RemoveExpired in 100 s, want one a second", calls)
		}
	})
}

// The previous process stopped in the middle of a reply.
func TestStart_EndsOrphans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parley.db")
	open := func() *embedded.Store {
		s, err := embedded.Open(path, embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := open()
	made, err := before.CreateSession(t.Context(), owner, conversation.NewSession{UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig})
	if err != nil {
		t.Fatal(err)
	}
	begun, err := before.BeginTurn(t.Context(), owner, conversation.NewTurn{
		SessionID: made.Session.ID, Role: conversation.User, Content: "hello", Tokens: 2, OnBusy: conversation.Reject, Waiter: "w",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(before.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{{Key: begun.Key, Text: []byte("Half of")}}), before.Close()); err != nil {
		t.Fatal(err)
	}
	after := open()
	defer func() { _ = after.Close() }()
	s := service.New(service.Options{Store: after, Models: models.Of(models.New("echo", conversationtest.Echo, 0)), Count: conversationtest.Count, Log: slog.New(slog.DiscardHandler)})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Drain(t.Context())
	m, _, err := s.Message(t.Context(), owner, made.Session.ID, begun.Reply.ID)
	if err != nil || m.Status != stream.Interrupted || m.Content != "Half of" {
		t.Errorf("the orphan is %+v %v", m, err)
	}
}

func TestStart_StoreFails_ErrorNamesFailedStep(t *testing.T) {
	failing := errors.New("planted")
	for name, nodes := range map[string]conversation.Nodes{"joining the other nodes": failingNodes{}, "ending orphaned replies": nil} {
		s := service.New(service.Options{Store: failingStore{}, Nodes: nodes, Count: conversationtest.Count, Log: slog.New(slog.DiscardHandler)})
		err := s.Start(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("Start returned %v, want %s: %v", err, name, failing)
		}
	}
}

type failingStore struct{ conversation.Store }

func (failingStore) EndOrphans(context.Context, func(string) int) (int, error) {
	return 0, errors.New("planted")
}

type failingNodes struct{ conversation.Nodes }

func (failingNodes) Join(context.Context, func(string)) error { return errors.New("planted") }

func TestMetricsAndUsageReport_CountSameTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := conversationtest.Start(t, conversationtest.ModelFunc(func(_ context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
			write([]byte("text"))
			return stream.Result{Usage: &stream.Usage{Prompt: 11, Completion: 7}}, nil
		}))
		start := conversation.TimeOf(time.Now())
		id := n.NewSession()
		n.Ask(id, "hello")
		time.Sleep(90 * time.Minute)
		n.Ask(id, "hello")
		end := start.Add(3 * time.Hour)
		m, err := n.Metrics(t.Context(), owner, conversation.Period{Start: start, End: end, Granularity: usage.ByHour})
		if err != nil || m.Tokens.Total != 36 || m.Sessions.Total != 1 || len(m.Series) != 3 || m.Series[1].Tokens.Total != 18 || m.Series[0].Start != start || m.Series[2].End != end {
			t.Errorf("the metrics are %+v %v", m, err)
		}
		report, err := n.UsageReport(t.Context(), owner, usage.Limits{})
		if err != nil || report.Tokens.Used != 36 || report.BillingPeriod.Start.String() != "2000-01-01T00:00:00.000Z" || report.BillingPeriod.End.String() != "2000-02-01T00:00:00.000Z" {
			t.Errorf("the usage report is %+v %v", report, err)
		}
	})
}

// ahead is a store. Its clock is one month ahead of the clock of this process.
type ahead struct{ conversation.Store }

func (s ahead) Usage(_ context.Context, _ conversation.Owner, from, to usage.Hour) (conversation.UsageSpan, error) {
	return conversation.UsageSpan{Now: usage.HourOf(time.Now().AddDate(0, 1, 0).UnixMilli())}, nil
}

func TestUsageReport_ClocksDiffer_MonthOfStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Store = ahead{o.Store} })
		report, err := n.UsageReport(t.Context(), owner, usage.Limits{})
		if err != nil || report.BillingPeriod.Start.String() != "2000-02-01T00:00:00.000Z" {
			t.Errorf("the usage report is %+v %v", report, err)
		}
	})
}

// A drain lets live replies end. Meanwhile, the service still serves reads.
func TestDrain_LiveReply_Completes(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	id := n.NewSession()
	replied := n.Later(conversationtest.Message(id, "hello"))
	c := model.Next(t)
	drained := make(chan struct{})
	go func() { defer close(drained); n.Drain(t.Context()) }()
	<-n.Draining()
	n.Get(id)
	c.Write("to the end")
	c.End()
	if r := conversationtest.Within(t, "the reply", replied); r.Err != nil || r.Status != stream.Completed || r.Content != "to the end" {
		t.Errorf("the reply is %+v", r)
	}
	conversationtest.Within(t, "the drain", drained)
	if n.Topics() != 0 || n.LiveReplies() != 0 {
		t.Errorf("%d topics and %d replies are left", n.Topics(), n.LiveReplies())
	}
}
