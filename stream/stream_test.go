package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHistory is a History that returns the entries that a test adds. The tests do not add live replies.
type fakeHistory struct {
	mu      sync.Mutex
	entries []*Entry
	reads   int // number of calls of EntriesFrom
}

func (a *fakeHistory) EntriesFrom(_ context.Context, _, id string, inclusive bool, limit int) ([]*Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reads++
	var found []*Entry
	for _, e := range a.entries {
		if (e.ID > id || inclusive && e.ID == id) && len(found) < limit {
			found = append(found, e)
		}
	}
	return found, nil
}

func (a *fakeHistory) add(entries ...*Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, entries...)
}

func ended(text string) Ending {
	return Ending{State: Completed, Message: &Document{Content: text}}
}

// drainInto calls Next until Next returns no event. It appends each event to out: the message id in "[id:", the text of
// a delta, the final state in "=state]".
func drainInto(t interface{ Fatalf(string, ...any) }, v *Viewer, out *strings.Builder) {
	for {
		event, ok, err := v.Next(context.Background())
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		if !ok {
			return
		}
		switch event.Kind {
		case Created:
			fmt.Fprintf(out, "[%s:", event.Entry.ID)
			if event.Entry.Reply == nil {
				out.WriteString("]")
			}
		case Delta:
			if !utf8.Valid(event.Delta) {
				t.Fatalf("delta %q splits a character", event.Delta)
			}
			if len(event.Delta) > MaxDelta {
				t.Fatalf("a delta has %d bytes, want at most %d", len(event.Delta), MaxDelta)
			}
			out.Write(event.Delta)
		case Ended:
			fmt.Fprintf(out, "=%s]", event.Ending.State)
		case Cleared:
			out.WriteString("{cleared}")
		case Deleted, Expired:
			out.WriteString("{gone}")
		}
	}
}

func TestAppend_SplitCharacter_TextStaysValidUTF8(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"plain", "plain"},
		{"größe 🙂 かな", "größe 🙂 かな"},
		{"a\xffb", "a\uFFFDb"},
		{"end \xf0\x9f\x99", "end \uFFFD"},
		{"\xf0\x9f", "\uFFFD"},
		{"\xf0\x9fx", "\uFFFDx"},
	} {
		for size := 1; size <= len(test.in); size++ {
			r := NewReply("r")
			for i := 0; i < len(test.in); i += size {
				r.Append([]byte(test.in[i:min(len(test.in), i+size)]))
				if text, _ := r.Snapshot(); !utf8.ValidString(text) {
					t.Fatalf("%q in pieces of %d bytes: the text %q is not valid UTF-8", test.in, size, text)
				}
			}
			r.Flush()
			if text, _ := r.Snapshot(); text != test.want {
				t.Errorf("%q in pieces of %d bytes: got %q, want %q", test.in, size, text, test.want)
			}
		}
	}
}

func TestEnd_Twice_FirstEndingStays(t *testing.T) {
	r := NewReply("r")
	r.Append([]byte("text"))
	if !r.End(ended("first")) || r.End(Ending{State: Failed}) {
		t.Fatal("End must return true for the first call only")
	}
	r.Append([]byte("late"))
	text, ending := r.Snapshot()
	if text != "text" || ending.Message.Content != "first" {
		t.Fatalf("got the text %q and the final message %q, want \"text\" and \"first\"", text, ending.Message.Content)
	}
}

func TestNext_LargeText_DeltasKeepCharactersWhole(t *testing.T) {
	text := strings.Repeat("äöü🙂", MaxDelta)
	h := NewHub()
	past := &fakeHistory{}
	past.add(&Entry{ID: "m1", Reply: EndedReply("m1", text, ended("m1"))})
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "[m1:"+text+"=completed]" {
		t.Fatal("the deltas do not add up to the text")
	}
}

func TestNext_AnyPosition_ShowsRestOfHistory(t *testing.T) {
	const text = "héllo wörld 🙂"
	past := &fakeHistory{}
	past.add(&Entry{ID: "m1x"}, &Entry{ID: "m2x", Reply: EndedReply("m2x", text, ended("m2x"))}, &Entry{ID: "m3x"})
	for _, test := range []struct {
		from Position
		want string
	}{
		{Position{}, "[m1x:][m2x:" + text + "=completed][m3x:]"},
		{Before("m2x"), "[m2x:" + text + "=completed][m3x:]"},
		{After("m1x"), "[m2x:" + text + "=completed][m3x:]"},
		{Position{ID: "m2x"}, text + "=completed][m3x:]"},
		{Position{ID: "m2x", Offset: len("héllo ")}, "wörld 🙂=completed][m3x:]"},
		{Position{ID: "m2x", Offset: 2}, "llo wörld 🙂=completed][m3x:]"}, // inside é: only a client can invent this offset
		{Position{ID: "m2x", Offset: len(text)}, "=completed][m3x:]"},
		{Position{ID: "m2x", Offset: len(text) + 100}, "=completed][m3x:]"},
		{After("m2x"), "[m3x:]"},
		{Position{ID: "m2y", Offset: 7}, "[m3x:]"}, // this message no longer exists
		{After("m3x"), ""},
		{After("m9x"), ""},
	} {
		h := NewHub()
		v := h.Subscribe("s", past, func() {})
		v.Start(test.from)
		var got strings.Builder
		drainInto(t, v, &got)
		v.Close()
		if got.String() != test.want {
			t.Errorf("from %+v: got %q, want %q", test.from, got.String(), test.want)
		}
	}
}

// TestViewer_RandomSession_SeesEverythingOnce runs a session with random steps. Viewers read, unsubscribe and subscribe
// again at random. At the end, each viewer must have been shown the whole session, once.
func TestViewer_RandomSession_SeesEverythingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, past := NewHub(), &fakeHistory{}
		var want strings.Builder // all events of the session, in the form of drainInto
		const viewers = 3
		var shown [viewers]strings.Builder
		var view [viewers]*Viewer
		var position [viewers]Position
		open := func(i int) {
			view[i] = h.Subscribe("s", past, func() {})
			view[i].Start(position[i])
		}
		for i := range view {
			open(i)
		}
		var topic *Topic
		var reply *Entry
		head, next := "", 0
		id := func() string { next++; return fmt.Sprintf("m%06d", next) }
		steps := rapid.IntRange(1, 120).Draw(t, "steps")
		for range steps {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				if reply == nil {
					user := &Entry{ID: id()}
					reply = &Entry{ID: id(), Reply: NewReply("")}
					topic = h.Open("s")
					past.add(user)
					topic.Publish(head, user, reply)
					head = reply.ID
					fmt.Fprintf(&want, "[%s:][%s:", user.ID, reply.ID)
					continue
				}
				piece := rapid.StringN(1, 8, -1).Draw(t, "piece")
				reply.Reply.Append([]byte(piece))
				want.WriteString(piece)
			case 3:
				if reply == nil {
					continue
				}
				text, _ := reply.Reply.Snapshot()
				past.add(&Entry{ID: reply.ID, Reply: EndedReply(reply.ID, string(text), ended("x"))})
				reply.Reply.End(ended("x"))
				topic.ScheduleTrim()
				topic.Close()
				want.WriteString("=completed]")
				reply = nil
			case 4:
				if topic != nil {
					topic.dropTail()
				}
			default:
				i := rapid.IntRange(0, viewers-1).Draw(t, "viewer")
				if rapid.Bool().Draw(t, "reconnect") {
					view[i].Close()
					open(i)
				}
				for range rapid.IntRange(1, 5).Draw(t, "events") {
					event, ok, err := view[i].Next(context.Background())
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						break
					}
					position[i] = event.After
					write(&shown[i], event)
				}
			}
		}
		for i := range view {
			drainInto(t, view[i], &shown[i])
			view[i].Close()
			if shown[i].String() != want.String() {
				t.Fatalf("viewer %d was shown\n%q, want\n%q", i, shown[i].String(), want.String())
			}
		}
		if reply != nil {
			topic.Close()
		}
		if h.Topics() != 0 {
			t.Fatalf("%d topics remain in the hub", h.Topics())
		}
	})
}

func write(out *strings.Builder, event Event) {
	switch {
	case event.Kind == Created && event.Entry.Reply == nil:
		fmt.Fprintf(out, "[%s:]", event.Entry.ID)
	case event.Kind == Created:
		fmt.Fprintf(out, "[%s:", event.Entry.ID)
	case event.Kind == Delta:
		out.Write(event.Delta)
	case event.Kind == Ended:
		fmt.Fprintf(out, "=%s]", event.Ending.State)
	}
}

func TestViewer_KeepsUp_DoesNotReadHistory(t *testing.T) {
	h, past := NewHub(), &fakeHistory{}
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	var got strings.Builder
	drainInto(t, v, &got)
	reads := past.reads
	topic := h.Open("s")
	defer topic.Close()
	head := ""
	for i := range 20 {
		user, reply := fmt.Sprintf("m%03da", i), fmt.Sprintf("m%03db", i)
		e := &Entry{ID: reply, Reply: NewReply(reply)}
		topic.Publish(head, &Entry{ID: user}, e)
		e.Reply.Append([]byte("x"))
		drainInto(t, v, &got)
		e.Reply.End(ended("x"))
		drainInto(t, v, &got)
		head = reply
	}
	if past.reads != reads {
		t.Fatalf("the viewer read history %d times, want 0", past.reads-reads)
	}
	if n := strings.Count(got.String(), "x=completed"); n != 20 {
		t.Fatalf("%d replies were shown, want 20", n)
	}
	if len(topic.tail) > maxTail {
		t.Fatalf("the tail has %d messages, want at most %d", len(topic.tail), maxTail)
	}
}

func TestViewer_EarlierMessagesRemoved_ShowsTail(t *testing.T) {
	h := NewHub()
	topic := h.Open("s")
	defer topic.Close()
	reply := NewReply("m7")
	topic.Publish("m5", &Entry{ID: "m6"}, &Entry{ID: "m7", Reply: reply}) // the history has no messages up to m5
	v := h.Subscribe("s", &fakeHistory{}, func() {})
	defer v.Close()
	v.Start(After("m2"))
	reply.Append([]byte("text"))
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "[m6:][m7:text" {
		t.Fatalf("the viewer was shown %q", got.String())
	}
}

func TestClear_ViewerNotShownRemovedMessages(t *testing.T) {
	h, past := NewHub(), &fakeHistory{}
	past.add(&Entry{ID: "m1"}, &Entry{ID: "m2"})
	topic := h.Open("s")
	defer topic.Close()
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	if event, _, _ := v.Next(context.Background()); event.Kind != Created {
		t.Fatalf("the first event is %+v, want Created", event)
	}
	past.entries = nil
	h.Clear("s", "m3")
	topic.Publish("m3", &Entry{ID: "m4"})
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "{cleared}[m4:]" {
		t.Fatalf("the viewer was shown %q", got.String())
	}
}

func TestRemove_DeletedIsLastEvent(t *testing.T) {
	h := NewHub()
	topic := h.Open("s")
	defer topic.Close()
	woken := 0
	v := h.Subscribe("s", &fakeHistory{}, func() { woken++ })
	defer v.Close()
	reply := NewReply("m2")
	topic.Publish("", &Entry{ID: "m1"}, &Entry{ID: "m2", Reply: reply})
	var got strings.Builder
	drainInto(t, v, &got)
	h.Remove("s", Deleted)
	reply.End(Ending{State: Cancelled}) // no Message, because the session is gone
	drainInto(t, v, &got)
	h.Remove("s", Expired)
	drainInto(t, v, &got)
	if got.String() != "[m1:][m2:{gone}" || woken != 1 {
		t.Fatalf("the viewer was shown %q and woken %d times, want once", got.String(), woken)
	}
}

func TestNotifySummarised_ShowsNewestOnly(t *testing.T) {
	hub := NewHub()
	hub.NotifySummarised("s", SummaryStats{Summarised: 1}) // no viewer is subscribed yet
	woken := 0
	v := hub.Subscribe("s", &fakeHistory{}, func() { woken++ })
	defer v.Close()
	next := func() *SummaryStats {
		t.Helper()
		event, ok, err := v.Next(t.Context())
		if err != nil || ok != (event.Kind == ContextSummarised) {
			t.Fatalf("got %+v, %v; want ContextSummarised or no event", event, err)
		}
		return event.Summary
	}
	if c := next(); c != nil {
		t.Errorf("a viewer was shown the summary %+v, which was made before it subscribed", *c)
	}
	for n := range 3 {
		hub.NotifySummarised("s", SummaryStats{Summarised: n + 2})
	}
	if c := next(); woken != 1 || c == nil || c.Summarised != 4 {
		t.Errorf("the viewer was woken %d times and shown %+v; want once, and 4 summarised messages", woken, c)
	}
	if c := next(); c != nil {
		t.Errorf("the viewer was shown a summary twice: %+v", *c)
	}
	late := hub.Subscribe("s", &fakeHistory{}, func() {})
	defer late.Close()
	if event, ok, _ := late.Next(t.Context()); ok {
		t.Errorf("a viewer that subscribed later was shown %+v", event)
	}
}

// reasoningModel reasons every 100 ms for 3.05 s. Then it writes a text, reasons again, and ends the reply.
func reasoningModel(_ context.Context, request Request, write func([]byte)) (Result, error) {
	reason := func() {
		request.Reasoning()
		write(nil)
	}
	for range 31 {
		reason()
		time.Sleep(100 * time.Millisecond)
	}
	write([]byte("hi"))
	time.Sleep(2 * time.Second)
	reason()
	return Result{}, nil
}

type modelFunc func(context.Context, Request, func([]byte)) (Result, error)

func (modelFunc) Name() string { return "func" }

func (f modelFunc) Generate(ctx context.Context, r Request, write func([]byte)) (Result, error) {
	return f(ctx, r, write)
}

func TestPump_ModelReasons_ViewerToldOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := NewHub()
		topic := hub.Open("s")
		defer topic.Close()
		reply := NewReply("m2")
		topic.Publish("", &Entry{ID: "m1"}, &Entry{ID: "m2", Reply: reply})
		var kinds []EventKind
		woken := make(chan struct{}, 1)
		watch := func() *Viewer {
			return hub.Subscribe("s", &fakeHistory{}, func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			})
		}
		v := watch()
		defer v.Close()
		read := func(v *Viewer) (event Event, ok bool) {
			event, ok, err := v.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return event, ok
		}
		done := make(chan Outcome)
		go func() {
			done <- Pump(t.Context(), modelFunc(reasoningModel), Request{}, reply, Timeouts{FirstByte: time.Minute, Stall: time.Minute})
		}()
		var outcome Outcome
		for over := false; !over; {
			for event, ok := read(v); ok; event, ok = read(v) {
				kinds = append(kinds, event.Kind)
				if event.Kind == Reasoning && (event.Entry.ID != "m2" || event.After != Position{ID: "m2"}) {
					t.Errorf("the event is %+v", event)
				}
			}
			select {
			case <-woken:
			case outcome = <-done:
				over = true
			}
			if len(kinds) == 4 { // a viewer that comes while the model reasons is told at once
				late := watch()
				for range 2 {
					read(late)
				}
				if event, ok := read(late); !ok || event.Kind != Reasoning {
					t.Errorf("a late viewer was shown %+v", event)
				}
				late.Close()
			}
		}
		want := []EventKind{Created, Created, Reasoning, Reasoning, Reasoning, Reasoning, Delta}
		if !slices.Equal(kinds, want) || outcome.State != Completed {
			t.Errorf("the viewer was shown %v, want %v; the outcome is %+v", kinds, want, outcome)
		}
	})
}

func TestScheduleTrim_DropsTailAfterRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, past := NewHub(), &fakeHistory{}
		topic := h.Open("s")
		defer topic.Close()
		first := NewReply("m1")
		topic.Publish("", &Entry{ID: "m1", Reply: first})
		first.End(ended("m1"))
		topic.ScheduleTrim()
		time.Sleep(tailRetention - time.Millisecond)
		if h.Reply("s", "m1") != first {
			t.Error("the hub dropped the reply too early")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if h.Reply("s", "m1") != nil {
			t.Errorf("the reply is still in memory %v after its end", tailRetention)
		}
		past.add(&Entry{ID: "m1", Reply: EndedReply("m1", "text", ended("m1"))})

		second := NewReply("m2")
		topic.ScheduleTrim()
		time.Sleep(tailRetention / 2)
		topic.Publish("m1", &Entry{ID: "m2", Reply: second}) // a new turn stops the timer
		time.Sleep(time.Hour)
		if h.Reply("s", "m2") != second {
			t.Error("the hub dropped a live reply")
		}
		v := h.Subscribe("s", past, func() {})
		defer v.Close()
		second.Append([]byte("live"))
		var got strings.Builder
		drainInto(t, v, &got)
		if got.String() != "[m1:text=completed][m2:live" {
			t.Errorf("a viewer is shown %q", got.String())
		}
	})
}

func TestHub_LastHolderCloses_TopicRemoved(t *testing.T) {
	h := NewHub()
	if h.Reply("s", "m1") != nil {
		t.Error("Reply returned a reply of a topic without a holder")
	}
	h.Clear("s", "m1") // has no effect, because the hub has no topic
	h.Remove("s", Deleted)
	topic := h.Open("s")
	if topic.Name() != "s" || !topic.HasOneHolder() || h.Topics() != 1 {
		t.Errorf("topic %q, one holder %v, %d topics", topic.Name(), topic.HasOneHolder(), h.Topics())
	}
	v := h.Subscribe("s", &fakeHistory{}, func() {})
	if topic.HasOneHolder() || v.Topic() != topic {
		t.Error("the viewer does not hold the topic")
	}
	v.Close()
	topic.Close()
	if h.Topics() != 0 {
		t.Errorf("the hub has %d topics without a holder, want 0", h.Topics())
	}
}

// failingHistory is a History that fails at its first call. After that, it contains one message, m1.
type failingHistory struct{ failed bool }

func (f *failingHistory) EntriesFrom(_ context.Context, _, id string, _ bool, _ int) ([]*Entry, error) {
	if !f.failed {
		f.failed = true
		return nil, errors.New("unreachable")
	}
	if id < "m1" {
		return []*Entry{{ID: "m1"}}, nil
	}
	return nil, nil
}

func TestNext_HistoryFails_NextCallSucceeds(t *testing.T) {
	v := NewHub().Subscribe("s", &failingHistory{}, func() {})
	if _, ok, err := v.Next(t.Context()); ok || err == nil {
		t.Errorf("got an event: %v, error %v; want the error of the history", ok, err)
	}
	var got strings.Builder
	drainInto(t, v, &got)
	v.Close()
	if _, ok, err := v.Next(t.Context()); ok || err != nil {
		t.Errorf("after Close: got an event: %v, error %v; want neither", ok, err)
	}
	if got.String() != "[m1:]" {
		t.Errorf("got %q", got.String())
	}
}
