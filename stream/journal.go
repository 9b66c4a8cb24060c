package stream

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Segment is new text of a live reply: the bytes from Offset on. Segments may repeat or overlap, so a Sink must accept
// the same text twice.
type Segment[K comparable] struct {
	Key    K // identifies the reply in the store
	Offset int
	Text   []byte // valid until the call that received it returns
}

// Sink stores segments of many replies in one call.
type Sink[K comparable] interface {
	Journal(ctx context.Context, batch []Segment[K]) error
}

// Journal writes the new text of all live replies to a sink, one batch a tick. If the sink fails, the next batch contains
// the same text again. Its methods may be called from any goroutine. It has a goroutine only while replies are live.
type Journal[K comparable] struct {
	// static
	sink Sink[K]
	tick time.Duration
	log  *slog.Logger

	mu      sync.Mutex
	batched sync.Cond         // on mu; signals that a batch has been written, or has failed
	live    map[K]*journalled // guarded by mu
	running bool              // guarded by mu
	done    sync.WaitGroup

	// owned by run
	batch   []Segment[K]
	written []*journalled
}

type journalled struct {
	reply   *Reply
	offset  int  // bytes written so far; owned by run
	inBatch bool // guarded by Journal.mu: the batch that is being written contains text of the reply
}

// NewJournal returns a journal that writes to sink once every tick.
func NewJournal[K comparable](sink Sink[K], tick time.Duration, log *slog.Logger) *Journal[K] {
	j := &Journal[K]{sink: sink, tick: tick, log: log, live: make(map[K]*journalled)}
	j.batched.L = &j.mu
	return j
}

// Add starts journalling a reply, until Remove.
func (j *Journal[K]) Add(key K, reply *Reply) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.live[key] = &journalled{reply: reply}
	if !j.running {
		j.running = true
		j.done.Go(j.run)
	}
}

// Remove stops journalling a reply. If the batch that is being written contains its text, Remove waits for that batch, so the
// sink gets no text of the reply after Remove returns.
func (j *Journal[K]) Remove(key K) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := j.live[key]
	delete(j.live, key)
	for w != nil && w.inBatch {
		j.batched.Wait()
	}
}

// Wait blocks until no reply is live and no batch is being written.
func (j *Journal[K]) Wait() { j.done.Wait() }

func (j *Journal[K]) run() {
	ticker := time.NewTicker(j.tick)
	defer ticker.Stop()
	failing := false
	for range ticker.C {
		if !j.collect() {
			return
		}
		if len(j.batch) == 0 {
			continue
		}
		err := j.sink.Journal(context.Background(), j.batch)
		j.release()
		if err == nil {
			for i, w := range j.written {
				w.offset += len(j.batch[i].Text)
			}
		} else if !failing {
			j.log.Error("journal: writing live text failed; retrying every tick", "error", err)
		}
		failing = err != nil
	}
}

// collect fills j.batch with the new text of all live replies. It reports whether any reply is live.
func (j *Journal[K]) collect() bool {
	clear(j.batch)
	clear(j.written)
	j.batch, j.written = j.batch[:0], j.written[:0]
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.live) == 0 {
		j.running = false
		return false
	}
	for key, w := range j.live {
		text, _ := w.reply.Snapshot()
		if len(text) > w.offset {
			j.batch = append(j.batch, Segment[K]{Key: key, Offset: w.offset, Text: text[w.offset:]})
			j.written = append(j.written, w)
			w.inBatch = true
		}
	}
	return true
}

// release notes that the batch is no longer being written.
func (j *Journal[K]) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.written {
		w.inBatch = false
	}
	j.batched.Broadcast()
}
