package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/usage"
)

// lockWait is the time for which Open waits for another process to release the file. A server that is stopping closes the file
// within a moment. If another server keeps running, the user should see the error soon.
const lockWait = time.Second

// ErrInUse means that another process, usually a running server, has the file open.
var ErrInUse = errors.New("in use by another process")

// Options configures a store. The zero value is valid.
type Options struct {
	// Log receives errors that the store cannot return to a caller; nil discards them. Contents, ids and keys are never logged.
	Log *slog.Logger

	noSync        bool          // for tests only: a crash of the machine can lose or damage the file
	watchInterval time.Duration // for tests only; 0 means the constant watchInterval
	allocate      allocator     // for tests only; nil means the function allocate
	scrubInterval time.Duration // for tests only; 0 means the constant scrubInterval
}

// Store is an open database file with its journal. Its methods may be called from any goroutine. After Close, the methods return
// conversation.ErrUnavailable.
type Store struct {
	// constant
	path      string
	db        *bbolt.DB
	file      *os.File    // the file of db; bbolt closes it
	opened    os.FileInfo // of file
	pageSize  int
	log       *slog.Logger
	journal   *journal
	scrub     *scrubber
	orphans   []conversation.TurnKey // turns that were live when the file was opened
	unsettled [][]byte               // keys that were in unsettledBucket when the file was opened
	limits    limits
	tickets   tickets
	sockets   sockets

	newest atomic.Uint64 // id of the last transaction that was committed
	size   int64         // greatest size of the file that a writer has seen; guarded by writer
	stuck  atomic.Bool   // a lock of bbolt may be locked for ever (see begin)

	// writer is locked during each bbolt transaction that writes. readers is read-locked during each bbolt transaction that
	// reads. The scrubber locks both mutexes, because it needs a moment without any transaction.
	writer  sync.Mutex
	readers sync.RWMutex
	room    room // guarded by writer

	mu      sync.Mutex
	waiting []*operation // guarded by mu; operations that the committer has not taken yet
	closed  bool         // guarded by mu

	wake      chan struct{} // signals the committer that waiting or closed has changed; capacity 1
	committed chan struct{} // closed when the committer has returned
	quit      chan struct{} // closed by Close; ends watch
	watched   chan struct{} // closed when watch has returned

	health health

	// owned by the committer
	queues     map[ref]queue
	usageSwept usage.Hour // hour in which old buckets of usage were last removed
	months     months
	scratch    writing
}

// Open opens or creates the file and locks it for this process. Turns that the last process did not end stay live until
// EndOrphans. If another process has the file open, the error wraps ErrInUse.
func Open(path string, options Options) (*Store, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.scrubInterval == 0 {
		options.scrubInterval = scrubInterval
	}
	if options.watchInterval == 0 {
		options.watchInterval = watchInterval
	}
	if options.allocate == nil {
		options.allocate = allocate
	}
	s := &Store{
		path:      path,
		room:      room{reserve: reserve{size: dataReserve, allocate: options.allocate}},
		quit:      make(chan struct{}),
		watched:   make(chan struct{}),
		log:       options.Log,
		health:    health{log: options.Log},
		wake:      make(chan struct{}, 1),
		committed: make(chan struct{}),
		queues:    make(map[ref]queue),
	}
	s.limits = newLimits(s.countDue)
	if err := s.openFile(path, options.noSync); err != nil {
		return nil, err
	}
	if err := s.load(path + journalSuffix); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store %s: %w", path, err), s.db.Close())
	}
	s.journal.room.allocate = options.allocate
	s.makePrivate(path)
	s.makePrivate(path + journalSuffix)
	s.scrub = newScrubber(s, s.file, options.scrubInterval)
	s.scratch = writing{store: s, queues: make(map[ref]queue), requests: make(map[hourAt]int64), tally: tally{places: make(map[hourAt]int)}}
	s.probeRoom()
	go s.commit()
	go s.scrub.run()
	go s.watch(options.watchInterval)
	s.scrub.want() // the last process may have ended between a removal and its sweep
	return s, nil
}

// openFile locks and checks the file, and opens the database.
func (s *Store) openFile(path string, noSync bool) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		// The file never shrinks, so after a busy day the list of free pages is long. With NoFreelistSync, a commit does not
		// write this list. Instead, Open scans the file for free pages, which takes about a second for 1.8 GB.
		NoFreelistSync: true,
		NoStatistics:   true,
		NoSync:         noSync,
		OpenFile:       s.openChecked,
	})
	if errors.Is(err, berrors.ErrTimeout) || errors.Is(err, ErrInUse) {
		return fmt.Errorf("the store %s is %w", path, ErrInUse)
	}
	if err != nil {
		return fmt.Errorf("opening the store %s: %w", path, err)
	}
	s.db, s.pageSize = db, db.Info().PageSize
	if s.opened, err = s.file.Stat(); err != nil {
		return errors.Join(fmt.Errorf("opening the store %s: %w", path, err), db.Close())
	}
	return nil
}

// openChecked opens, locks and checks the file. bbolt later locks the file again, which changes nothing. The check must
// come before that, because a damaged page makes bbolt panic in a goroutine of its own.
func (s *Store) openChecked(name string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	if err = lockFile(file, true, lockWait); err == nil {
		err = s.checkFile(file)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.file = file
	return file, nil
}

// makePrivate removes the access of other users to a file. Another program, for example one that restores a backup, may have
// made the file readable. makePrivate only logs a failure, because some file systems have no modes.
func (s *Store) makePrivate(path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		s.log.Warn("other users may read the store: could not restrict the mode of its file", "file", path, "error", err)
	}
}

// load creates missing buckets, upgrades the schema, finds the turns that the last process did not end, and opens the journal.
func (s *Store) load(journalPath string) error {
	if err := s.upgrade(); err != nil {
		return err
	}
	err := s.write(func(tx *bbolt.Tx) error {
		hasKeyEnds, hasStored := tx.Bucket([]byte(keyEndsBucket)) != nil, tx.Bucket([]byte(storedBucket)) != nil
		for _, name := range allBuckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		if !hasKeyEnds { // a new file, or a file of a version that kept no ends
			if err := addKeyEnds(&reading{bolt: tx, now: conversation.TimeOf(time.Now())}); err != nil {
				return err
			}
		}
		if !hasStored { // a new file, or a file of a version that counted no bytes
			return fillStored(&reading{bolt: tx})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.read(func(tx *bbolt.Tx) error {
		r := &reading{bolt: tx}
		if s.orphans, err = r.live(); err != nil {
			return err
		}
		s.unsettled, err = r.unsettled()
		return err
	}); err != nil {
		return err
	}
	s.journal, err = openJournal(journalPath, s.orphans, s.log)
	return err
}

// Close waits for the submitted writes, refuses later writes, runs a requested sweep, and closes the file. Calling it again is
// safe and does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.waiting = append(s.waiting, newOperation((*writing).countRequests))
	s.mu.Unlock()
	s.alert()
	close(s.quit)
	<-s.watched
	<-s.committed
	s.scrub.close()
	if s.stuck.Load() {
		return errors.Join(s.journal.close(), s.file.Close(), errStuck) // bbolt could wait for ever
	}
	return errors.Join(s.journal.close(), s.db.Close()) // bbolt waits for its readers
}

// Ping returns an error that wraps conversation.ErrUnavailable if the store cannot be read or has a fault (health.go). It does
// not test a write.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.health.err(); err != nil {
		return err
	}
	return s.view(ctx, func(*reading) error { return nil })
}

// view admits the request in ctx and calls read in a read transaction, which is a snapshot.
func (s *Store) view(ctx context.Context, read func(*reading) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a := auth.AdmissionOf(ctx)
	if a.Pending() && isTest(a) {
		if err := s.admitTest(ctx, a); err != nil {
			return err
		}
	}
	err := s.read(func(tx *bbolt.Tx) error {
		r := &reading{bolt: tx, now: conversation.TimeOf(time.Now())}
		if err := r.admit(s, a); err != nil {
			return err
		}
		return read(r)
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) || errors.Is(err, berrors.ErrInvalidMapping) {
		return unavailable(err)
	}
	return err
}

func unavailable(err error) error { return conversation.Unavailable(err) }
