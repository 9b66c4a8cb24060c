package stream

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Segment is new text of a live reply. Segments may repeat or overlap, so a Sink must accept the same text twice.
type Segment[K comparable] struct {
	Key    K      // identifies the reply in the store
	Offset int    // the position of Text in the text of the reply, in bytes
	Text   []byte // never changes: a Sink must not change it, and may keep it
}

// Sink stores segments of many replies in one call. A Sink must not keep batch after the call. A batch may have several
// segments of one reply, in order.
type Sink[K comparable] interface {
	Journal(ctx context.Context, batch []Segment[K]) error
}

// Journal writes the new text of all live replies to a sink, one batch per tick. If there is more than maxBatch of new
// text, further batches follow at once. If the sink fails, the next batch contains the same text again. The methods of a
// Journal may be called from any goroutine. A Journal runs a goroutine only while it has live replies.
type Journal[K comparable] struct {
	// static
	sink Sink[K]
	tick time.Duration
	log  *slog.Logger

	mu      sync.Mutex
	batched sync.Cond         // uses mu; signals that the sink has stored a batch or has failed
	live    map[K]*journalled // guarded by mu
	running bool              // guarded by mu
	done    sync.WaitGroup

	// owned by run
	batch   []Segment[K]
	written []*journalled // for each segment of batch, its reply
}

type journalled struct {
	reply   *Reply
	offset  int  // number of bytes of the reply that the sink has stored; owned by run
	inBatch bool // the sink is writing a batch that contains text of the reply; guarded by Journal.mu
}

// maxBatch is the size, in bytes, at which a batch ends. A sink may copy a batch, so maxBatch bounds the memory of the copy. In a
// tick of 50 ms, 10,000 replies with 100 tokens a second have 250 KiB of new text.
const maxBatch = 1 << 20

// NewJournal returns a journal that writes a batch to sink every tick. It logs the first of several failures in a row.
func NewJournal[K comparable](sink Sink[K], tick time.Duration, log *slog.Logger) *Journal[K] {
	j := &Journal[K]{sink: sink, tick: tick, log: log, live: make(map[K]*journalled)}
	j.batched.L = &j.mu
	return j
}

// Add adds a reply to the journal. Until Remove, the journal writes the new text of the reply under key.
func (j *Journal[K]) Add(key K, reply *Reply) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.live[key] = &journalled{reply: reply}
	if !j.running {
		j.running = true
		j.done.Go(j.run)
	}
}

// Remove removes a reply from the journal. If the sink is writing a batch that contains text of the reply, Remove waits
// for that batch. So the sink gets no text of the reply after Remove has returned.
func (j *Journal[K]) Remove(key K) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := j.live[key]
	delete(j.live, key)
	for w != nil && w.inBatch {
		j.batched.Wait()
	}
}

// Wait blocks until all replies have been removed and the sink is not writing a batch.
func (j *Journal[K]) Wait() { j.done.Wait() }

func (j *Journal[K]) run() {
	ticker := time.NewTicker(j.tick)
	defer ticker.Stop()
	failing := false
	for range ticker.C {
		for more := true; more; {
			var live bool
			if live, more = j.collect(); !live {
				return
			}
			err := j.write()
			if err != nil && !failing {
				j.log.Error("journal: writing live text failed; retrying every tick", "error", err)
			}
			failing = err != nil
			more = more && !failing
		}
	}
}

// write writes the batch to the sink.
func (j *Journal[K]) write() error {
	if len(j.batch) == 0 {
		return nil
	}
	err := j.sink.Journal(context.Background(), j.batch)
	j.release()
	if err == nil {
		for i, w := range j.written {
			w.offset += len(j.batch[i].Text)
		}
	}
	return err
}

// collect fills j.batch with new text of the live replies, up to maxBatch. live is false if the journal has no live reply.
// more is true if there may be more new text.
func (j *Journal[K]) collect() (live, more bool) {
	clear(j.batch)
	clear(j.written)
	j.batch, j.written = j.batch[:0], j.written[:0]
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.live) == 0 {
		j.running = false
		return false, false
	}
	size := 0
	for key, w := range j.live {
		for offset := w.offset; size < maxBatch; {
			text, _ := w.reply.Read(offset)
			if len(text) == 0 {
				break
			}
			j.batch = append(j.batch, Segment[K]{Key: key, Offset: offset, Text: text})
			j.written = append(j.written, w)
			w.inBatch = true
			offset += len(text)
			size += len(text)
		}
	}
	return true, size >= maxBatch
}

// release marks the replies of the batch as no longer in a batch, and wakes the callers of Remove.
func (j *Journal[K]) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.written {
		w.inBatch = false
	}
	j.batched.Broadcast()
}
