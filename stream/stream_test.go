package stream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// archive is a history that a test keeps by hand.
type archive struct {
	mu      sync.Mutex
	entries []*Entry // ended ones only
	reads   int
}

func (a *archive) EntriesFrom(_ context.Context, _, id string, inclusive bool, limit int) ([]*Entry, error) {
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

func (a *archive) add(entries ...*Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, entries...)
}

func ended(text string) Ending {
	return Ending{State: Completed, Message: []byte(text)}
}

// shown is what a viewer was shown, as text: each created message's id, each reply's text, each ending.
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
				t.Fatalf("a delta splits a character: %q", event.Delta)
			}
			if len(event.Delta) > MaxDelta {
				t.Fatalf("a delta has %d bytes", len(event.Delta))
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

func TestACharacterThatArrivesInPiecesShowsWhenItIsWhole(t *testing.T) {
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
				if text, _ := r.Snapshot(); !utf8.Valid(text) {
					t.Fatalf("%q in pieces of %d: the text %q is not whole", test.in, size, text)
				}
			}
			r.Flush()
			if text, _ := r.Snapshot(); string(text) != test.want {
				t.Errorf("%q in pieces of %d: got %q, want %q", test.in, size, text, test.want)
			}
		}
	}
}

func TestAReplyEndsOnceAndTakesNothingMore(t *testing.T) {
	r := NewReply("r")
	r.Append([]byte("text"))
	if !r.End(ended("first")) || r.End(Ending{State: Failed}) {
		t.Fatal("not exactly the first End decided")
	}
	r.Append([]byte("late"))
	text, ending := r.Snapshot()
	if string(text) != "text" || string(ending.Message) != "first" {
		t.Fatalf("got %q, %q", text, ending.Message)
	}
}

func TestALargeTextComesInPiecesThatEndWithACharacter(t *testing.T) {
	text := strings.Repeat("äöü🙂", MaxDelta)
	h := NewHub()
	past := &archive{}
	past.add(&Entry{ID: "m1", Reply: EndedReply("m1", text, ended("m1"))})
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "[m1:"+text+"=completed]" {
		t.Fatal("the text is not what was written")
	}
}

func TestAViewerGoesOnFromAnyPosition(t *testing.T) {
	const text = "héllo wörld 🙂"
	past := &archive{}
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
		{Position{ID: "m2x", Offset: 2}, "llo wörld 🙂=completed][m3x:]"}, // inside é: made up
		{Position{ID: "m2x", Offset: len(text)}, "=completed][m3x:]"},
		{Position{ID: "m2x", Offset: len(text) + 100}, "=completed][m3x:]"},
		{After("m2x"), "[m3x:]"},
		{Position{ID: "m2y", Offset: 7}, "[m3x:]"}, // gone meanwhile
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

// TestWhateverHappensAViewerSeesTheWholeSession lets a session live at random, with viewers that read at random, stop
// and come back at random, and compares what each was shown with what was said.
func TestWhateverHappensAViewerSeesTheWholeSession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, past := NewHub(), &archive{}
		var said strings.Builder // all that was said in the session
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
					fmt.Fprintf(&said, "[%s:][%s:", user.ID, reply.ID)
					continue
				}
				piece := rapid.StringN(1, 8, -1).Draw(t, "piece")
				reply.Reply.Append([]byte(piece))
				said.WriteString(piece)
			case 3:
				if reply == nil {
					continue
				}
				text, _ := reply.Reply.Snapshot()
				past.add(&Entry{ID: reply.ID, Reply: EndedReply(reply.ID, string(text), ended("x"))})
				reply.Reply.End(ended("x"))
				topic.ScheduleTrim()
				topic.Close()
				said.WriteString("=completed]")
				reply = nil
			case 4:
				if topic != nil {
					topic.dropTail()
				}
			default:
				i := rapid.IntRange(0, viewers-1).Draw(t, "viewer")
				if rapid.Bool().Draw(t, "cut") {
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
			if shown[i].String() != said.String() {
				t.Fatalf("viewer %d was shown\n%q, said was\n%q", i, shown[i].String(), said.String())
			}
		}
		if reply != nil {
			topic.Close()
		}
		if h.Topics() != 0 {
			t.Fatalf("%d topics are left", h.Topics())
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

func TestAViewerThatKeepsUpReadsNoHistory(t *testing.T) {
	h, past := NewHub(), &archive{}
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
		t.Fatalf("history was read %d times", past.reads-reads)
	}
	if n := strings.Count(got.String(), "x=completed"); n != 20 {
		t.Fatalf("%d replies were seen", n)
	}
	if len(topic.tail) > maxTail {
		t.Fatalf("the tail has %d messages", len(topic.tail))
	}
}

func TestAViewerGoesOnWithTheTailWhereNothingLiesBetween(t *testing.T) {
	h := NewHub()
	topic := h.Open("s")
	defer topic.Close()
	reply := NewReply("m7")
	topic.Publish("m5", &Entry{ID: "m6"}, &Entry{ID: "m7", Reply: reply}) // m5 is gone, and so is all before it
	v := h.Subscribe("s", &archive{}, func() {})
	defer v.Close()
	v.Start(After("m2"))
	reply.Append([]byte("text"))
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "[m6:][m7:text" {
		t.Fatalf("got %q", got.String())
	}
}

func TestClearingShowsNothingOfWhatWasBefore(t *testing.T) {
	h, past := NewHub(), &archive{}
	past.add(&Entry{ID: "m1"}, &Entry{ID: "m2"})
	topic := h.Open("s")
	defer topic.Close()
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	if event, _, _ := v.Next(context.Background()); event.Kind != Created {
		t.Fatalf("got %+v", event)
	}
	past.entries = nil
	h.Clear("s", "m3")
	topic.Publish("m3", &Entry{ID: "m4"})
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "{cleared}[m4:]" {
		t.Fatalf("got %q", got.String())
	}
}

func TestASessionThatIsGoneIsTheLastEvent(t *testing.T) {
	h := NewHub()
	topic := h.Open("s")
	defer topic.Close()
	woken := 0
	v := h.Subscribe("s", &archive{}, func() { woken++ })
	defer v.Close()
	reply := NewReply("m2")
	topic.Publish("", &Entry{ID: "m1"}, &Entry{ID: "m2", Reply: reply})
	var got strings.Builder
	drainInto(t, v, &got)
	h.Remove("s", Deleted)
	reply.End(Ending{State: Cancelled}) // the session was gone first: no message
	drainInto(t, v, &got)
	h.Remove("s", Expired)
	drainInto(t, v, &got)
	if got.String() != "[m1:][m2:{gone}" || woken != 1 {
		t.Fatalf("got %q, woken %d times", got.String(), woken)
	}
}

func TestACompressionIsShownToWhoViewsAndTheNewestAloneToWhoIsSlow(t *testing.T) {
	hub := NewHub()
	hub.NotifySummarised("s", SummaryStats{Summarised: 1}) // nobody views
	woken := 0
	v := hub.Subscribe("s", &archive{}, func() { woken++ })
	defer v.Close()
	next := func() *SummaryStats {
		t.Helper()
		event, ok, err := v.Next(t.Context())
		if err != nil || ok != (event.Kind == ContextSummarised) {
			t.Fatalf("%+v, %v", event, err)
		}
		return event.Summary
	}
	if c := next(); c != nil {
		t.Errorf("from before it came, a viewer is shown %+v", *c)
	}
	for n := range 3 {
		hub.NotifySummarised("s", SummaryStats{Summarised: n + 2})
	}
	if c := next(); woken != 1 || c == nil || c.Summarised != 4 {
		t.Errorf("woken %d times for %+v", woken, c)
	}
	if c := next(); c != nil {
		t.Errorf("then %+v", *c)
	}
	late := hub.Subscribe("s", &archive{}, func() {})
	defer late.Close()
	if event, ok, _ := late.Next(t.Context()); ok {
		t.Errorf("who comes later is shown %+v", event)
	}
}
