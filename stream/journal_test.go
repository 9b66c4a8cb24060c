package stream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sink is a Sink that keeps the text of each reply.
type sink struct {
	mu      sync.Mutex
	text    map[string]string
	batches int
	fail    bool // Journal must return an error
}

func (s *sink) Journal(_ context.Context, batch []Segment[string]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	if s.fail {
		return fmt.Errorf("unreachable")
	}
	for _, segment := range batch {
		s.text[segment.Key] = s.text[segment.Key][:segment.Offset] + string(segment.Text)
	}
	return nil
}

func (s *sink) setFailing(fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func TestJournal_SinkFailsForAWhile_StoresWholeText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sink{text: map[string]string{}}
		j := NewJournal(out, 50*time.Millisecond, slog.New(slog.DiscardHandler))
		replies := make([]*Reply, 100)
		for i := range replies {
			replies[i] = NewReply("")
			j.Add(fmt.Sprint(i), replies[i])
		}
		for range 10 {
			for _, r := range replies {
				r.Append([]byte("some text "))
			}
			time.Sleep(50 * time.Millisecond)
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(100 * time.Millisecond)
		if out.batches > 11 {
			t.Errorf("%d batches in 10 ticks, want at most 11", out.batches)
		}
		out.setFailing(true)
		for _, r := range replies {
			r.Append([]byte("during failure "))
		}
		pass(time.Second)
		out.setFailing(false)
		pass(100 * time.Millisecond)
		for i := range replies {
			if got, want := out.text[fmt.Sprint(i)], strings.Repeat("some text ", 10)+"during failure "; got != want {
				t.Fatalf("reply %d: the sink has %q, want %q", i, got, want)
			}
			j.Remove(fmt.Sprint(i))
		}
		j.Wait()
		batches := out.batches
		time.Sleep(time.Minute)
		if out.batches != batches {
			t.Error("the journal wrote a batch without live replies")
		}
	})
}

// heldSink is a Sink. Its Journal blocks until the test closes release.
type heldSink struct{ begun, release chan struct{} }

func (s *heldSink) Journal(context.Context, []Segment[string]) error {
	s.begun <- struct{}{}
	<-s.release
	return nil
}

// TestJournal_RemoveDuringBatch_WaitsForBatch checks that Remove waits for a batch with text of the reply. Otherwise the
// batch could reach the store after the session was deleted, and the text would stay in the store.
func TestJournal_RemoveDuringBatch_WaitsForBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &heldSink{make(chan struct{}), make(chan struct{})}
		j := NewJournal(out, 50*time.Millisecond, slog.New(slog.DiscardHandler))
		written, silent := NewReply("written"), NewReply("silent")
		j.Add("written", written)
		j.Add("silent", silent)
		written.Append([]byte("some text"))
		<-out.begun
		j.Remove("silent") // does not wait, because the batch has no text of this reply
		removed := make(chan struct{})
		go func() {
			j.Remove("written")
			close(removed)
		}()
		synctest.Wait()
		select {
		case <-removed:
			t.Error("Remove returned while the batch was being written")
		default:
		}
		close(out.release)
		<-removed
		j.Wait()
	})
}
