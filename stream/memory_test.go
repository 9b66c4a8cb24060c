package stream

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// keptText is a Sink that keeps the text of all segments, as the embedded store does.
type keptText struct {
	mu    sync.Mutex
	parts map[string][][]byte // guarded by mu
	size  int                 // guarded by mu; in bytes
}

func (s *keptText) Journal(_ context.Context, batch []Segment[string]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, segment := range batch {
		s.size += len(segment.Text)
		parts := s.parts[segment.Key]
		if last := len(parts) - 1; last >= 0 && cap(parts[last]) >= len(parts[last])+len(segment.Text) {
			parts[last] = parts[last][:len(parts[last])+len(segment.Text)]
			continue
		}
		s.parts[segment.Key] = append(parts, segment.Text)
	}
	return nil
}

// await waits until the sink has size bytes.
func (s *keptText) await(size int) {
	for {
		s.mu.Lock()
		have := s.size
		s.mu.Unlock()
		if have == size {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// heapInUse returns the number of bytes of the live objects on the heap.
func heapInUse() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the first call may leave objects of pools
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestReply_LargeText_InMemoryOnce writes replies token by token, with viewers and a journal that keeps the text, and ends them.
// While a reply is live, and after its end, each byte of text may take at most 1.25 bytes of memory: text, journal, viewers, the
// final message and its frames together.
func TestReply_LargeText_InMemoryOnce(t *testing.T) {
	const replies, size, viewers, most = 8, 1 << 20, 4, 1.25
	hub, sink := NewHub(), &keptText{parts: make(map[string][][]byte)}
	j := NewJournal(sink, time.Millisecond, slog.New(slog.DiscardHandler))
	before := heapInUse()
	check := func(when string) {
		t.Helper()
		if each := float64(heapInUse()-before) / (replies * size); each > most {
			t.Errorf("%s: %.2f bytes of memory for each byte of text, want at most %.2f", when, each, most)
		} else {
			t.Logf("%s: %.2f bytes of memory for each byte of text", when, each)
		}
	}
	var texts []*Reply
	var views []*Viewer
	for i := range replies {
		name := string(rune('a' + i))
		reply := NewReply("m1" + name)
		topic := hub.Open(name)
		defer topic.Close()
		topic.Publish("", &Entry{ID: reply.ID, Reply: reply})
		for range viewers {
			views = append(views, hub.Subscribe(name, &fakeHistory{}, func() {}))
		}
		j.Add(name, reply)
		texts = append(texts, reply)
	}
	read := func() {
		for _, v := range views {
			for {
				event, ok, err := v.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				v.Topic().Encode(event, memoryEncoder{}).Release()
			}
		}
	}
	token := []byte("token\n ")
	for n := 0; n < size; n += len(token) {
		for _, reply := range texts {
			reply.Append(token)
		}
		if n%(64<<10) < len(token) {
			read()
		}
	}
	read()
	written, _ := texts[0].Size()
	sink.await(replies * written)
	check("live")
	for i, reply := range texts {
		name := string(rune('a' + i))
		j.Remove(name)
		delete(sink.parts, name)
		reply.End(Ending{State: Completed, Message: &Document{Content: reply.Join()}})
	}
	read()
	check("ended")
	j.Wait()
	for _, v := range views {
		v.Close()
	}
	runtime.KeepAlive(sink)
	if text, _ := texts[0].Snapshot(); !strings.HasPrefix(text, "token\n token\n ") {
		t.Errorf("the text begins with %q", text[:20])
	}
}

// memoryEncoder encodes deltas, and final messages.
type memoryEncoder struct{}

func (memoryEncoder) AppendFrame(dst []byte, _ string, event Event) []byte {
	if event.Kind == Ended {
		return event.Ending.Message.AppendJSON(dst)
	}
	return AppendString(dst, event.Delta)
}
