package stream

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// countingEncoder counts the events that it encodes.
type countingEncoder struct{ encoded *atomic.Int64 }

func (c countingEncoder) AppendFrame(dst []byte, _ string, event Event) []byte {
	c.encoded.Add(1)
	return append(dst, event.Delta...)
}

// crowd is many viewers of one reply. The first viewers, stuck of them, are woken once and never read.
type crowd struct {
	topic   *Topic
	reply   *Reply
	views   []*Viewer
	wakes   []int
	stuck   int
	encoded atomic.Int64
	seen    int
}

func newCrowd(t testing.TB, size, stuck int) *crowd {
	h := &crowd{reply: NewReply("m2"), wakes: make([]int, size), stuck: stuck}
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

// read calls Next of every viewer with an index of at least from, until there are no more events.
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

func TestFanOut_StuckViewers_WokenOnceEncodedOnce(t *testing.T) {
	const size, stuck, tokens = 1000, 10, 100
	h := newCrowd(t, size, stuck)
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
			t.Fatalf("viewer %d was woken %d times in %d tokens", i, n, tokens)
		}
	}
	if n := h.encoded.Load(); n != tokens {
		t.Errorf("%d frames were encoded for %d tokens and %d viewers in lockstep", n, tokens, size-stuck)
	}
	if want := (size - stuck) * tokens * len("token "); h.seen != want {
		t.Errorf("%d bytes were read, want %d", h.seen, want)
	}
	// The stuck viewers read again. Each gets all missed text as one delta.
	h.encoded.Store(0)
	h.seen = 0
	h.read(t, 0)
	if want := stuck * tokens * len("token "); h.seen != want || h.encoded.Load() != 1 {
		t.Errorf("the stuck viewers then read %d bytes, want %d, in %d frames, want 1", h.seen, want, h.encoded.Load())
	}
}

func TestFanOut_FewAllocationsPerToken(t *testing.T) {
	for _, viewers := range []int{1, 100} {
		t.Run(fmt.Sprint(viewers, " viewers"), func(t *testing.T) {
			h := newCrowd(t, viewers, 0)
			token := []byte("token ")
			for range 5000 / viewers { // grow the text, so that its buffer rarely grows during the measurement
				h.reply.Append(token)
				h.read(t, 0)
			}
			got := testing.AllocsPerRun(500, func() {
				h.reply.Append(token)
				h.read(t, 0)
			})
			if got > 0.1*float64(viewers) {
				t.Errorf("%.2f allocations a token, want at most %.1f", got, 0.1*float64(viewers))
			}
			t.Logf("%.2f allocations a token", got)
		})
	}
}

func BenchmarkToken(b *testing.B) {
	for _, viewers := range []int{1, 1000} {
		b.Run(fmt.Sprint(viewers, "viewers"), func(b *testing.B) {
			h := newCrowd(b, viewers, 0)
			token := []byte("token ")
			b.ReportAllocs()
			for b.Loop() {
				h.reply.Append(token)
				h.read(b, 0)
			}
		})
	}
}
