package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/usage"
)

const (
	// maxBatch is the maximum number of operations in one transaction. It keeps the first operation from waiting for thousands of
	// later ones.
	maxBatch = 1024 // maxBatchFull on a full disk
	// maxScratch is the size, in bytes, of the largest buffer for values that the next transaction reuses.
	maxScratch = 1 << 20
)

// operation is a write that waits for the committer.
type operation struct {
	run func(*writing) error
	// inMemory means that run changes only queues. Such an operation takes effect even if the store cannot be written.
	inMemory bool
	taken    atomic.Bool // set once: by the committer before it runs the operation, or by a caller that withdraws it
	err      error       // set before done is closed
	done     chan struct{}
}

func newOperation(run func(*writing) error) *operation {
	return &operation{run: run, done: make(chan struct{})}
}

// update submits an operation with a result. It returns the result when the operation is durable.
func update[T any](ctx context.Context, s *Store, run func(*writing) (T, error)) (T, error) {
	var result T
	err := s.submit(ctx, func(w *writing) (err error) {
		result, err = run(w)
		return err
	})
	if errors.Is(err, conversation.ErrUnavailable) {
		result = *new(T) // the operation ran, but its commit failed
	}
	return result, err
}

// submit admits the request in ctx and passes an operation to the committer. See run.
func (s *Store) submit(ctx context.Context, run func(*writing) error) error {
	a := auth.AdmissionOf(ctx)
	switch {
	case !a.Pending():
		return s.run(ctx, run)
	case isTest(a):
		if err := s.admitTest(ctx, a); err != nil {
			return err
		}
		return s.run(ctx, run)
	}
	return s.run(ctx, func(w *writing) error {
		if err := w.admit(s, a); err != nil {
			return err
		}
		return run(w)
	})
}

// run passes an operation to the committer and returns when the operation is durable or has failed. If ctx ends before the
// committer has taken the operation, the operation does not run. Once the committer has taken the operation, run waits for the
// result even if ctx ends.
//
// The committer may run an operation more than once; each run begins with the same stored state. An operation should check before
// it writes. If it fails after a write, the committer rolls back the transaction and runs the rest of the batch again.
func (s *Store) run(ctx context.Context, run func(*writing) error) error {
	return s.runOperation(ctx, newOperation(run))
}

func (s *Store) runOperation(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return unavailable(errors.New("the store is closed"))
	}
	s.waiting = append(s.waiting, op)
	s.mu.Unlock()
	s.alert()
	select {
	case <-op.done:
	case <-ctx.Done():
		if op.taken.CompareAndSwap(false, true) {
			return ctx.Err()
		}
		<-op.done
	}
	return op.err
}

func (s *Store) alert() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal is pending already
	}
}

// commit is the body of the committer goroutine. It returns when the store is closed and no operation waits.
func (s *Store) commit() {
	defer close(s.committed)
	var taken []*operation
	for range s.wake {
		for {
			s.gather()
			var closed bool
			taken, closed = s.take(taken[:0])
			if len(taken) == 0 && closed {
				return
			}
			if len(taken) == 0 {
				break
			}
			s.runBatch(taken)
			clear(taken)
		}
	}
}

// gather lets callers that are about to write join the next batch. It yields to other goroutines until the queue has stopped
// growing or fills a batch. Without it, most batches on one core have one operation, because the first caller wakes the
// committer, which then runs before the other callers.
func (s *Store) gather() {
	for waiting, before := 0, -1; waiting > before && waiting < maxBatch; {
		runtime.Gosched()
		s.mu.Lock()
		waiting, before = len(s.waiting), waiting
		s.mu.Unlock()
	}
}

// take moves the next batch of the waiting operations to the end of taken. It also reports whether the store is closed.
func (s *Store) take(taken []*operation) (_ []*operation, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), s.maxBatch())
	taken = append(taken, s.waiting[:n]...)
	rest := copy(s.waiting, s.waiting[n:])
	clear(s.waiting[rest:])
	s.waiting = s.waiting[:rest]
	return taken, s.closed
}

func (s *Store) maxBatch() int {
	if s.health.err(full) != nil {
		return maxBatchFull
	}
	return maxBatch
}

// runBatch runs operations in one transaction. If the disk has become full, runBatch runs the operations again in
// smaller transactions, so that only the operations that add data fail. At the end, it releases all callers.
func (s *Store) runBatch(taken []*operation) {
	batch := make([]*operation, 0, len(taken))
	for _, op := range taken {
		if op.taken.CompareAndSwap(false, true) {
			batch = append(batch, op)
		}
	}
	wasFull := s.health.err(full) != nil
	batch = s.runWithoutSpoilers(batch)
	if !wasFull && len(batch) > 0 && errors.Is(batch[0].err, conversation.ErrStoreFull) {
		for part := range slices.Chunk(batch, maxBatchFull) {
			s.release(s.runWithoutSpoilers(slices.Clone(part)))
		}
		return
	}
	s.release(batch)
}

// release releases the callers of operations. If the transaction failed, the operations that change only queues run now, without
// a transaction.
func (s *Store) release(batch []*operation) {
	for _, op := range batch {
		if op.inMemory && op.err != nil {
			s.scratch.begin()
			op.err = op.run(&s.scratch)
			s.scratch.apply()
		}
		close(op.done)
	}
}

// runWithoutSpoilers runs operations in one transaction. If an operation panics or fails after a write,
// runWithoutSpoilers leaves this operation out, releases its caller, and runs the other operations again. It returns
// the operations that are left.
func (s *Store) runWithoutSpoilers(batch []*operation) []*operation {
	for len(batch) > 0 {
		spoiler := s.attempt(batch)
		if spoiler < 0 {
			break
		}
		close(batch[spoiler].done)
		batch = slices.Delete(batch, spoiler, spoiler+1)
	}
	return batch
}

// errNothingWritten rolls back a transaction that wrote nothing, to save the sync.
var errNothingWritten = errors.New("nothing was written")

// attempt runs operations in one transaction and sets their errors. If an operation panics or fails after a write, attempt rolls
// back the transaction and returns the index of that operation. Otherwise it returns -1.
func (s *Store) attempt(batch []*operation) (spoiler int) {
	spoiler = -1
	if err := inPlace(s.path, s.opened); err != nil {
		_ = s.health.set(moved, err)
	}
	if err := s.health.err(broken, moved); err != nil {
		for _, op := range batch {
			op.err = err
		}
		return -1
	}
	w := &s.scratch
	w.begin()
	id := 0
	err := s.write(func(tx *bbolt.Tx) error {
		w.bolt, id = tx, tx.ID()
		if s.health.err(full) == nil {
			_ = s.keepRoom(tx.Size()) // if the disk is full, the operations that add data fail
		}
		written := false
		for i, op := range batch {
			w.wrote = false
			panicked := w.try(op)
			if op.err != nil && (w.wrote || panicked) {
				spoiler = i
				return op.err
			}
			written = written || w.wrote
		}
		if !written {
			return errNothingWritten
		}
		if err := w.putTally(); err != nil {
			return err
		}
		w.reportPrepared()
		return nil
	})
	w.bolt = nil
	switch {
	case spoiler >= 0:
	case err == nil:
		s.health.clear(failing)
		clear(w.requests)
		w.apply()
	case errors.Is(err, errNothingWritten):
		w.apply()
	default:
		err = s.fail(id, err)
		for _, op := range batch {
			op.err = err
		}
	}
	return spoiler
}

// try runs one operation and reports whether it panicked.
func (w *writing) try(op *operation) (panicked bool) {
	defer func() {
		if p := recover(); p != nil {
			panicked = true
			if d := damageOf(p); d != nil {
				op.err = w.store.damaged(d, p != any(d))
				op.err = w.store.health.set(broken, restart(op.err))
				return
			}
			op.err = fmt.Errorf("embedded: a panic in an operation: %v", p)
			w.store.log.Error("an operation of the store panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	op.err = op.run(w)
	return false
}

// fail decides whether the store can continue after transaction id has failed to commit. Usually the store can continue, because
// the file still has the state before the transaction. The exception is a failed sync of the meta page, the last step of a
// commit. Then this process sees the new state, and a crash may leave either state. In this case the store refuses all writes and
// sweeps until the file is opened again. fail returns the error for the callers of the transaction.
func (s *Store) fail(id int, err error) error {
	if noSpace(err) {
		err = s.health.set(full, err)
		s.writer.Lock()
		s.room.inside = false
		s.writer.Unlock()
		return err
	}
	visible := true
	if viewErr := s.read(func(tx *bbolt.Tx) error {
		visible = tx.ID() >= id
		return nil
	}); viewErr != nil || visible {
		return s.health.set(broken, restart(err))
	}
	return s.health.set(failing, err)
}

func restart(err error) error { return fmt.Errorf("restart the server: %w", err) }

// writing is the write transaction that operations use. The committer owns it. An operation also changes queues, grants and the
// live replies of the journal, which are in memory. The committer applies these changes when the transaction is durable. Until
// then, only operations of the same batch see them.
type writing struct {
	reading
	store *Store

	wrote      bool                   // whether the running operation has written
	queues     map[ref]queue          // new values of the queues that change
	grants     []chan struct{}        // channels of waiters; apply closes them to wake the waiters
	began      []conversation.TurnKey // turns that become live
	ended      []string               // ids of replies that are no longer live
	prepared   []preparedTurn         // turns whose callers want to know them before the commit
	remove     bool                   // whether data was removed, so that a sweep is needed
	usageSwept usage.Hour             // new value of Store.usageSwept

	tally tally // the counts of usage
	// requests has the requests that were taken from limits. The requests stay here until a commit has counted them.
	requests map[hourAt]int64
	arena    []byte // the values of the transaction, which bbolt does not copy before the commit
}

func (w *writing) begin() {
	w.now = conversation.TimeOf(time.Now())
	w.wrote, w.remove = false, false
	w.usageSwept = w.store.usageSwept
	clear(w.tally.places)
	clear(w.queues)
	clear(w.grants)
	clear(w.began)
	clear(w.ended)
	clear(w.prepared)
	w.grants, w.began, w.ended, w.prepared = w.grants[:0], w.began[:0], w.ended[:0], w.prepared[:0]
	if w.arena = w.arena[:0]; cap(w.arena) > maxScratch {
		w.arena = nil
	}
}

// apply makes the transaction's changes to memory. The transaction must be durable, or must have written nothing.
func (w *writing) apply() {
	for at, q := range w.queues {
		if q.empty() {
			delete(w.store.queues, at)
		} else {
			w.store.queues[at] = q
		}
	}
	for _, key := range w.began {
		w.store.journal.begin(key)
	}
	for _, id := range w.ended {
		w.store.journal.end(id)
	}
	w.store.usageSwept = w.usageSwept
	if w.remove {
		w.store.scrub.want()
	}
	for _, granted := range w.grants {
		close(granted)
	}
}

// put writes a record.
func (w *writing) put(bucket string, key, value []byte) error {
	start := len(w.arena)
	w.arena = append(w.arena, value...)
	return w.putFrom(bucket, key, start)
}

// putFrom writes a record. The value is the part of the arena from the index start to its end.
func (w *writing) putFrom(bucket string, key []byte, start int) error {
	w.wrote = true
	b := w.bucket(bucket)
	w.arena = binary.BigEndian.AppendUint32(w.arena, crc32.Update(keySum(b.sum, key), castagnoli, w.arena[start:]))
	return b.bolt.Put(key, w.arena[start:len(w.arena):len(w.arena)])
}

func (w *writing) delete(bucket string, key []byte) error {
	w.wrote = true
	return w.bucket(bucket).bolt.Delete(key)
}
