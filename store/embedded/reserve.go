package embedded

import (
	"errors"
	"math"
	"os"
	"strings"
	"syscall"

	"go.etcd.io/bbolt"
)

// This file keeps room on the disk. Each file of the store has blocks that are allocated behind its used part, so no other
// program can take them. When the disk is full and the reserve of a file cannot be made, the store has the fault full:
// operations that add data are refused (see writing.mayGrow), and only the others use the reserve. These are deletions, expiry,
// ends of replies, revocations and counts.
//
// A deletion needs pages before it frees pages, because bbolt never changes a page in place. The file never shrinks, so
// room may also come from free pages inside the file. The fault ends when a sweep finds free pages with at least the
// size of the reserve.
//
// The reserve holds on file systems that write allocated blocks in place, such as ext4, XFS and tmpfs. On others, and on systems
// without fallocate, there may be no reserve. A full disk is then noticed when a commit fails.

const (
	// dataReserve is the reserve of the database in bytes. A deletion writes 28 KB of pages in a small file, and 52 KB
	// in a file with 4,000 sessions, before bbolt can use the pages that it frees. Three pages on the way to a record
	// in each of ten buckets are 120 KB. Twice that size for each of maxBatchFull operations is 4 MB.
	dataReserve = 4 << 20
	// journalReserve is the reserve of the journal in bytes: a minute of text of 100 live replies with 40 tokens a second.
	journalReserve = 1 << 20
	// maxBatchFull is the maximum number of operations in one transaction on a full disk. The pages that a transaction frees are
	// free for the next one, so small transactions need a small reserve.
	maxBatchFull = 16
)

// reserve keeps size bytes allocated behind the used part of a file. The owner of the file guards it.
type reserve struct {
	size     int64
	upTo     int64     // blocks before this offset are allocated
	allocate allocator // constant; replaced in tests
}

// allocator allocates the blocks of a file in [from, from+n).
type allocator = func(f *os.File, from, n int64) error

// keep allocates the reserve again if the used part has grown into it. It allocates twice the size, so that most calls have
// nothing to do.
func (r *reserve) keep(f *os.File, used int64) error {
	if used+r.size <= r.upTo {
		return nil
	}
	err := r.allocate(f, used, 2*r.size)
	switch {
	case err == nil:
		r.upTo = used + 2*r.size
	case errors.Is(err, errors.ErrUnsupported):
		r.upTo, err = math.MaxInt64, nil
	}
	return err
}

// noSpace reports whether err means that a file cannot grow: a full disk, a quota, or a limit of the file's size. bbolt drops the
// cause of an error when it fails to grow a file, so noSpace also looks at the text.
func noSpace(err error) bool {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error()) {
			return true
		}
	}
	return false
}

// room is the reserve of the database. It is guarded by Store.writer.
type room struct {
	reserve
	inside bool  // the last sweep found enough free pages, and the file has not grown since
	size   int64 // size of the used part of the file when inside was last set
}

// keepRoom makes the reserve of the database again if necessary. used is the size of the used part of the file. If there is
// neither a reserve nor room inside the file, keepRoom sets the fault full. The caller holds s.writer.
func (s *Store) keepRoom(used int64) error {
	if s.room.inside && s.room.size == used {
		return nil
	}
	err := s.room.keep(s.file, used)
	if s.room.inside = false; err != nil && noSpace(err) {
		return s.health.set(full, err)
	}
	return nil
}

// foundFree records that a sweep has found free pages: free bytes in a file with a used part of used bytes. The caller holds
// s.writer.
func (s *Store) foundFree(used, free int64) {
	s.room.inside, s.room.size = free >= s.room.reserve.size, used
}

// probeRoom is called when the store is opened, and while the disk is full. It ends the fault full when each file has
// its reserve, or the database has enough free pages. On a full disk it also writes the last page of the reserve,
// because a limit of the file's size does not stop an allocation.
func (s *Store) probeRoom() {
	if err := s.journal.keepRoom(); err != nil {
		_ = s.health.set(full, err)
		return
	}
	s.writer.Lock()
	defer s.writer.Unlock()
	used, err := s.used()
	if err != nil {
		return
	}
	if s.keepRoom(used) != nil {
		return
	}
	if s.health.err(full) == nil {
		return
	}
	if !s.room.inside && s.room.upTo != math.MaxInt64 {
		page := make([]byte, s.db.Info().PageSize)
		if _, err := s.file.WriteAt(page, s.room.upTo-int64(len(page))); err != nil {
			s.room.upTo = 0
			_ = s.health.set(full, err)
			return
		}
	}
	s.health.clear(full)
}

// used returns the size of the used part of the database: the pages up to the high-water mark.
func (s *Store) used() (size int64, err error) {
	err = s.read(func(tx *bbolt.Tx) error {
		size = tx.Size()
		return nil
	})
	return size, err
}

// mayGrow returns an error if the disk is full. Each operation that adds data calls it before it writes.
func (w *writing) mayGrow() error { return w.store.health.err(full) }
