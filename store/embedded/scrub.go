package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"parley/conversation"
)

const (
	// scrubPages is the number of pages that a sweep examines before it lets writers continue. 512 pages of 4 KB (2 MB) take a
	// fraction of a millisecond.
	scrubPages = 512
	// scrubInterval is the pause between two sweeps, because a sweep examines the whole file (150 ms for 1.8 GB).
	scrubInterval = time.Second
)

// scrubber overwrites removed data. bbolt never writes a page in place. Removed values, and older versions of other values,
// remain in free pages of the file until bbolt uses these pages again. After a removal, the scrubber sweeps once over the file
// and overwrites the free pages with zeros.
//
// This is as safe as the writes of bbolt itself (checked against the source of 1.5.0, the version in go.mod):
//
//   - Commit N writes only to pages that were free when it began, and syncs these pages. Then it writes and syncs its meta page.
//     From then on, a crash leaves state N. Pages that N no longer needs are pending, not free, because the previous meta page
//     and its readers refer to them (freelist.Free, Tx.Commit).
//   - A write transaction that begins makes pending pages free, except pages that an open reader may need (DB.beginRWTx,
//     freelist.ReleasePendingPages). It may write to any free page before it commits. The meta page on disk, N, refers to no page
//     that is free when the transaction begins. So bbolt itself may overwrite every such page.
//   - Tx.Page reports both free and pending pages as "free". A transaction that begins while no reader is open, and changes
//     nothing, has no pending pages. So the sweep begins such a transaction while readers are locked out. Later readers refer to
//     N, so they need not wait for the sweep. The transaction is rolled back, so the sweep does not change the state of bbolt.
//   - Pages above the high-water mark (Tx.Size) belong to no transaction, but a commit that failed may have left data there.
//
// One sweep is enough: a page that is in use during the sweep contains no removed data, because bbolt writes whole pages from
// zeroed buffers.
//
// The methods may be called from any goroutine.
type scrubber struct {
	// constant
	store    *Store
	file     *os.File // the file of the database; bbolt closes it
	interval time.Duration
	wake     chan struct{} // capacity 1
	quit     chan struct{}
	done     chan struct{}

	mu     sync.Mutex
	wanted int           // guarded by mu; number of requests for a sweep
	swept  int           // guarded by mu; number of these requests that are done
	passed chan struct{} // guarded by mu; closed and replaced after each sweep

	// owned by the goroutine
	failing bool   // the last sweep failed; only the first of several failures in a row is logged
	free    int    // number of free pages that this sweep has found
	page    []byte // buffer for the content of pages
	zeros   []byte // zeros, of the same length
}

func newScrubber(s *Store, file *os.File, interval time.Duration) *scrubber {
	size := scrubPages * s.db.Info().PageSize
	return &scrubber{
		store: s, file: file, interval: interval,
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		passed: make(chan struct{}),
		page:   make([]byte, size/8), zeros: make([]byte, size/8),
	}
}

// Scrubbed waits until the files contain no data that was removed before the call. It returns ctx.Err() if ctx ends first, and
// conversation.ErrUnavailable if the store is closed first.
func (s *Store) Scrubbed(ctx context.Context) error {
	c := s.scrub
	c.mu.Lock()
	target := c.wanted
	for c.swept < target {
		passed := c.passed
		c.mu.Unlock()
		select {
		case <-passed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return unavailable(errors.New("the store was closed"))
		}
		c.mu.Lock()
	}
	c.mu.Unlock()
	return nil
}

// want requests a sweep. It does not wait.
func (c *scrubber) want() {
	c.mu.Lock()
	c.wanted++
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // a signal is pending already
	}
}

// close runs the last requested sweep, if it has not run yet, and waits for the goroutine to end.
func (c *scrubber) close() {
	close(c.quit)
	<-c.done
}

func (c *scrubber) run() {
	defer close(c.done)
	for {
		select {
		case <-c.wake:
		case <-c.quit:
			c.sweepIfWanted()
			return
		}
		if !c.sweepIfWanted() {
			c.want() // try again after the pause
		}
		pause := time.NewTimer(c.interval)
		select {
		case <-pause.C:
		case <-c.quit:
			pause.Stop()
			c.sweepIfWanted()
			return
		}
	}
}

// sweepIfWanted sweeps if a sweep is requested. It returns false if the sweep failed.
func (c *scrubber) sweepIfWanted() bool {
	c.mu.Lock()
	target := c.wanted
	idle := c.swept == target
	c.mu.Unlock()
	if idle {
		return true
	}
	if c.store.health.err(broken) != nil {
		return false // the store has logged the reason
	}
	if err := c.sweep(); err != nil {
		if !c.failing {
			c.store.log.Error("removed data could not be overwritten; retrying", "error", err)
		}
		c.failing = true
		return false
	}
	c.failing = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = target
	close(c.passed)
	c.passed = make(chan struct{})
	return true
}

func (c *scrubber) sweep() error {
	journalErr := c.store.journal.clean()
	if journalErr != nil && !noSpace(journalErr) { // on a full disk, the sweep goes on, because it counts the free pages
		return journalErr
	}
	const firstPage = 2 // after the two meta pages
	c.free = 0
	for next := firstPage; next > 0; {
		var err error
		if next, err = c.sweepSome(next); err != nil {
			return err
		}
	}
	if journalErr != nil {
		journalErr = fmt.Errorf("%w: %w", conversation.ErrStoreFull, journalErr)
	}
	return errors.Join(journalErr, c.file.Sync())
}

// sweepSome sweeps up to scrubPages pages, starting at the page number first. It returns the number of the next page, or 0 at the
// end of the file.
func (c *scrubber) sweepSome(first int) (next int, err error) {
	s := c.store
	if err := s.health.err(broken, moved); err != nil {
		return 0, err // it is unknown which meta page is valid after a crash
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.catch(&err)
	tx, err := s.beginAlone()
	if err != nil {
		return 0, err
	}
	defer s.rollback(tx)
	info, err := c.file.Stat()
	if err != nil {
		return 0, err
	}
	pageSize := s.db.Info().PageSize
	used, end := int(tx.Size())/pageSize, int(info.Size())/pageSize
	last := min(first+scrubPages, end)
	for id := first; id < last; {
		from := id
		for id < last && (id >= used || isFree(tx, id)) {
			id++
		}
		c.free += max(0, min(id, used)-from)
		if err := c.zero(from*pageSize, id*pageSize, pageSize); err != nil {
			return 0, fmt.Errorf("overwriting free pages: %w", err)
		}
		id++ // this page ended the run because it is in use
	}
	if last == end {
		s.foundFree(tx.Size(), int64(c.free*pageSize))
		return 0, nil
	}
	return last, nil
}

// beginAlone begins a write transaction at a moment without readers.
func (s *Store) beginAlone() (*bbolt.Tx, error) {
	s.readers.Lock()
	defer s.readers.Unlock()
	return s.begin(true)
}

func isFree(tx *bbolt.Tx, id int) bool {
	page, err := tx.Page(id)
	return err == nil && page != nil && page.Type == "free"
}

// zero fills the pages between two offsets with zeros. It does not write pages that are already zero.
func (c *scrubber) zero(from, to, pageSize int) error {
	for from < to {
		pages := c.page[:min(to-from, len(c.page))]
		if _, err := c.file.ReadAt(pages, int64(from)); err != nil {
			return err
		}
		for at := 0; at < len(pages); {
			dirty := at
			for dirty < len(pages) && !bytes.Equal(pages[dirty:dirty+pageSize], c.zeros[:pageSize]) {
				dirty += pageSize
			}
			if dirty > at {
				if _, err := c.file.WriteAt(c.zeros[:dirty-at], int64(from+at)); err != nil {
					return err
				}
			}
			at = dirty + pageSize // skips the page at dirty, which is zero already
		}
		from += len(pages)
	}
	return nil
}
