package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

const (
	// scrubPages is how many pages are looked at while writers wait, and scrubInterval how often a sweep begins at most.
	scrubPages    = 512
	scrubInterval = time.Second
)

// scrubber overwrites what was removed. bbolt never writes a page in place: what it drops, and each older version of
// what it keeps, stays in the file's free pages until they are used again. After a removal the scrubber sweeps once
// over the file and fills with zeros the free pages that are not so yet.
//
// Why that is as safe as what bbolt does itself (1.5.0, read with care; go.mod pins it):
//
//   - A commit N writes only to pages that were free when it began, syncs them, then writes and syncs its meta page. From
//     then on N is what a crash falls back to. Pages that N no longer needs are pending, not free: the meta before N
//     and those who read it refer to them (freelist.Free, Tx.Commit).
//   - Beginning a transaction that writes makes pending pages free, but for those that an open reader may need
//     (DB.beginRWTx, freelist.ReleasePendingPages). It may then write to any free page before it commits, so bbolt
//     itself gives up whatever is free at that moment: the meta on disk, N, does not refer to it.
//   - Tx.Page calls both free and pending pages "free". In a transaction that begins while no reader is open, and has
//     changed nothing, there are no pending ones. So the sweep begins one with readers shut out; those that come after refer to
//     N as well and may come at once. It is rolled back: it changes nothing bbolt knows of.
//   - Pages above the high-water mark (Tx.Size) belong to nobody: a commit that failed may have left something there.
//
// A page that is in use when the sweep passes was written after the removal, or belongs to what was not removed: bbolt
// writes pages whole, from zeroed buffers. So one sweep is enough.
//
// Its methods may be called from any goroutine.
type scrubber struct {
	// static
	store    *Store
	file     *os.File // the database's own
	interval time.Duration
	wake     chan struct{} // holds one
	quit     chan struct{}
	done     chan struct{}

	mu     sync.Mutex
	wanted int           // guarded by mu; counts removals
	swept  int           // guarded by mu; of these, those that a sweep has followed
	passed chan struct{} // guarded by mu; closed, and made anew, after each sweep

	// owned by the goroutine
	page  []byte // what is in the pages
	zeros []byte // of the same length
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

// Scrubbed returns once nothing is left in the files of what was removed before it was called. It fails if ctx ends or
// the store is closed first.
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

// want asks for a sweep.
func (c *scrubber) want() {
	c.mu.Lock()
	c.wanted++
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default: // it has been told already
	}
}

// close sweeps if that is still wanted, and ends the scrubber.
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
			c.want() // again, in a while
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

// sweepIfWanted sweeps over what was removed since the last sweep, if anything was. It reports whether all is done.
func (c *scrubber) sweepIfWanted() bool {
	c.mu.Lock()
	target := c.wanted
	idle := c.swept == target
	c.mu.Unlock()
	if idle {
		return true
	}
	if err := c.sweep(); err != nil {
		c.store.log.Error("what was removed could not be overwritten yet; it is tried again", "error", err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.swept = target
	close(c.passed)
	c.passed = make(chan struct{})
	return true
}

func (c *scrubber) sweep() error {
	if err := c.store.journal.clean(); err != nil {
		return err
	}
	const firstPage = 2 // after the two meta pages
	for next := firstPage; next > 0; {
		var err error
		if next, err = c.sweepSome(next); err != nil {
			return err
		}
	}
	return c.file.Sync()
}

// sweepSome sweeps over some pages from the first on, and returns where to go on, 0 at the end of the file.
func (c *scrubber) sweepSome(first int) (next int, err error) {
	s := c.store
	if err := s.brokenBy(); err != nil {
		return 0, err // which meta page a crash falls back to is unknown
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	s.readers.Lock()
	tx, err := s.db.Begin(true)
	s.readers.Unlock()
	if err != nil {
		return 0, err
	}
	defer func() {
		if rollbackErr := tx.Rollback(); rollbackErr != nil && !errors.Is(rollbackErr, berrors.ErrTxClosed) {
			err = errors.Join(err, rollbackErr)
		}
	}()
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
		if err := c.zero(from*pageSize, id*pageSize, pageSize); err != nil {
			return 0, fmt.Errorf("overwriting free pages: %w", err)
		}
		id++ // the one that ended the run is in use
	}
	if last == end {
		return 0, nil
	}
	return last, nil
}

func isFree(tx *bbolt.Tx, id int) bool {
	page, err := tx.Page(id)
	return err == nil && page != nil && page.Type == "free"
}

// zero fills the file's pages between two offsets with zeros, those of them that are not so yet.
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
			at = dirty + pageSize // the one that ended the run is zero
		}
		from += len(pages)
	}
	return nil
}
