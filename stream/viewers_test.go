package stream

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// countingEncoder counts the events that it encodes.
type countingEncoder struct{ encoded *atomic.Int64 }

func (c countingEncoder) AppendFrame(dst []byte, _ string, event Event) []byte {
	c.encoded.Add(1)
	return append(dst, event.Delta...)
}

// crowd has many viewers of one reply.
type crowd struct {
	topic   *Topic
	reply   *Reply
	views   []*Viewer
	wakes   []int        // how often the topic woke each viewer
	encoded atomic.Int64 // number of events that were encoded
	seen    int          // number of bytes that all viewers were shown
}

func newCrowd(t testing.TB, size int) *crowd {
	h := &crowd{reply: NewReply("m2"), wakes: make([]int, size)}
	hub := NewHub()
	h.topic = hub.Open("s")
	for i := range size {
		h.views = append(h.views, hub.Subscribe("s", &fakeHistory{}, func() { h.wakes[i]++ }))
	}
	h.topic.Publish("", &Entry{ID: "m1"}, &Entry{ID: "m2", Reply: h.reply})
	h.read(t, 0)
	t.Cleanup(func() {
		for _, v := range h.views {
			v.Close()
		}
		h.topic.Close()
	})
	return h
}

// read shows all new events to the viewers with an index of at least from. The other viewers do not read.
func (h *crowd) read(t testing.TB, from int) {
	for _, v := range h.views[from:] {
		for {
			event, ok, err := v.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			h.seen += len(event.Delta)
			h.topic.Encode(event, countingEncoder{&h.encoded}).Release()
		}
	}
}

func TestFanOut_StuckViewers_WokenOnceAndShareFrames(t *testing.T) {
	const size, stuck, tokens = 1000, 10, 100
	h := newCrowd(t, size)
	h.encoded.Store(0)
	for range tokens {
		h.reply.Append([]byte("token "))
		h.read(t, stuck)
	}
	for i, n := range h.wakes {
		if i < stuck && n != 1 {
			t.Errorf("a stuck viewer was woken %d times, want 1", n)
		}
		if i >= stuck && n != tokens {
			t.Fatalf("viewer %d was woken %d times for %d tokens, want once per token", i, n, tokens)
		}
	}
	if n := h.encoded.Load(); n != tokens {
		t.Errorf("%d frames were encoded for %d tokens and %d viewers at the same offset, want one per token",
			n, tokens, size-stuck)
	}
	if want := (size - stuck) * tokens * len("token "); h.seen != want {
		t.Errorf("the viewers were shown %d bytes, want %d", h.seen, want)
	}
	// The stuck viewers read again. Each of them gets all missed text as one delta, and they share one frame.
	h.encoded.Store(0)
	h.seen = 0
	h.read(t, 0)
	if want := stuck * tokens * len("token "); h.seen != want || h.encoded.Load() != 1 {
		t.Errorf("the stuck viewers were then shown %d bytes, want %d, in %d frames, want 1", h.seen, want, h.encoded.Load())
	}
}

func TestFanOut_FewAllocationsPerToken(t *testing.T) {
	for _, viewers := range []int{1, 100} {
		t.Run(fmt.Sprint(viewers, " viewers"), func(t *testing.T) {
			h := newCrowd(t, viewers)
			token := []byte("token ")
			for range 5000 / viewers { // make the text long first, so that its buffer rarely grows during the measurement
				h.reply.Append(token)
				h.read(t, 0)
			}
			got := testing.AllocsPerRun(500, func() {
				h.reply.Append(token)
				h.read(t, 0)
			})
			if got > 0.1*float64(viewers) {
				t.Errorf("%.2f allocations per token, want at most %.1f", got, 0.1*float64(viewers))
			}
			t.Logf("%.2f allocations per token", got)
		})
	}
}

func BenchmarkToken(b *testing.B) {
	for _, viewers := range []int{1, 1000} {
		b.Run(fmt.Sprint(viewers, "viewers"), func(b *testing.B) {
			h := newCrowd(b, viewers)
			token := []byte("token ")
			b.ReportAllocs()
			for b.Loop() {
				h.reply.Append(token)
				h.read(b, 0)
			}
		})
	}
}

func TestStartAtEnd_TopicUnchanged_HistoryNotRead(t *testing.T) {
	h, past := NewHub(), &fakeHistory{}
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	v.StartAtEnd(After("m1"))
	var got strings.Builder
	drainInto(t, v, &got)
	topic := h.Open("s")
	defer topic.Close()
	reply := NewReply("m2")
	topic.Publish("m1", &Entry{ID: "m2", Reply: reply})
	reply.Append([]byte("text"))
	drainInto(t, v, &got)
	if got.String() != "[m2:text" || past.reads != 0 {
		t.Errorf("the viewer was shown %q and read history %d times, want 0", got.String(), past.reads)
	}
}

// A reply begins and ends between Subscribe and Next, and has left the memory.
func TestStartAtEnd_TopicChanged_HistoryRead(t *testing.T) {
	h, past := NewHub(), &fakeHistory{}
	v := h.Subscribe("s", past, func() {})
	defer v.Close()
	v.StartAtEnd(After("m1"))
	topic := h.Open("s")
	defer topic.Close()
	reply := NewReply("m2")
	topic.Publish("m1", &Entry{ID: "m2", Reply: reply})
	reply.End(ended("text"))
	past.add(&Entry{ID: "m2", Reply: EndedReply("m2", "text", ended("text"))})
	topic.dropTail()
	var got strings.Builder
	drainInto(t, v, &got)
	if got.String() != "[m2:text=completed]" {
		t.Errorf("the viewer was shown %q", got.String())
	}
}
