// Package embedded keeps everything in one durable file beside the process: the store of a single node (design
// section 7). It implements conversation.Store and auth.Store.
//
// All writes go through one goroutine, the committer, which takes the operations that wait, runs them in one
// transaction of bbolt, and answers them after one sync ([Store.submit]). It also owns what is only in memory: the
// queues of busy sessions. Reads are transactions of their own and wait for nobody.
//
// The text of live replies is beside the file, in PATH-journal ([journal]): it changes twenty times a second, and the
// file only when a turn begins or ends. What is removed is overwritten, not only unlinked ([scrubber]).
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

// lockWait is how long Open waits for another process to let go of the file: one that is just stopping.
const lockWait = time.Second

// ErrInUse says that another process has the file open: a running server, as a rule.
var ErrInUse = errors.New("in use by another process")

// Options of a store; the zero value is right for most.
type Options struct {
	// Log is told of faults that no caller is there to be told of; nil for nobody. No content, id or key is logged.
	Log *slog.Logger

	noSync        bool          // tests only: nothing survives a crash of the machine
	scrubInterval time.Duration // tests only; 0 for scrubInterval
}

// Store is a file that is open. Its methods may be called from any goroutine, until Close.
type Store struct {
	// static
	db      *bbolt.DB
	log     *slog.Logger
	journal *journal
	scrub   *scrubber
	orphans []conversation.TurnKey // live when the file was opened
	left    [][]byte               // the keys in unsettledBucket when the file was opened
	limits  limits

	// writer is held around each transaction of bbolt that writes, and readers shared around each that reads. The
	// scrubber needs a moment with neither.
	writer  sync.Mutex
	readers sync.RWMutex

	mu      sync.Mutex
	waiting []*operation // guarded by mu; what the committer has not taken yet
	closed  bool         // guarded by mu

	wake      chan struct{} // tells the committer to look at waiting; holds one
	committed chan struct{} // closed when the committer is gone

	// broken is why nothing can be written any more, once it is so (see fail).
	broken atomic.Pointer[error]

	// owned by the committer
	queues     map[ref]queue
	usageSwept usage.Hour // when old buckets of usage were last removed
	scratch    writing
}

// Open opens the file, or makes it, for this process alone. Turns that were live in it stay live until EndOrphans.
func Open(path string, options Options) (*Store, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.scrubInterval == 0 {
		options.scrubInterval = scrubInterval
	}
	s := &Store{
		log:       options.Log,
		wake:      make(chan struct{}, 1),
		committed: make(chan struct{}),
		queues:    make(map[ref]queue),
	}
	s.limits = newLimits(s.countDue)
	file, err := s.openFile(path, options.noSync)
	if err != nil {
		return nil, err
	}
	if err := s.load(path + "-journal"); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the store %s: %w", path, err), s.db.Close())
	}
	s.scrub = newScrubber(s, file, options.scrubInterval)
	s.scratch = writing{store: s, queues: make(map[ref]queue), requests: make(map[hourAt]int64), tally: tally{places: make(map[hourAt]int)}}
	go s.commit()
	go s.scrub.run()
	s.scrub.want() // what was removed just before the last process ended may still be there
	return s, nil
}

// openFile opens the database and makes its buckets. It returns the file beneath, which the database closes.
func (s *Store) openFile(path string, noSync bool) (*os.File, error) {
	var file *os.File
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		// A file never shrinks, so after a busy day the list of its free pages is long: it is found again by
		// reading the file when it is opened, instead of being written at each commit.
		NoFreelistSync: true,
		NoStatistics:   true,
		NoSync:         noSync,
		OpenFile: func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
			file, err = os.OpenFile(name, flag, mode)
			return file, err
		},
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("the store %s is %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the store %s: %w", path, err)
	}
	s.db = db
	return file, nil
}

// load brings the file up to the schema and finds what the last process left behind.
func (s *Store) load(journalPath string) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range allBuckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return upgrade(tx.Bucket([]byte(metaBucket)))
	})
	if err != nil {
		return err
	}
	if err := s.db.View(func(tx *bbolt.Tx) error {
		r := &reading{bolt: tx}
		if s.orphans, err = r.live(); err != nil {
			return err
		}
		s.left, err = r.unsettled()
		return err
	}); err != nil {
		return err
	}
	s.journal, err = openJournal(journalPath, s.orphans)
	return err
}

// upgrade checks the schema of the file and sets today's. Values of schema 2 are still read, and replaced as they change.
func upgrade(meta *bbolt.Bucket) error {
	switch version := string(meta.Get([]byte(schemaKey))); version {
	case schemaVersion:
		return nil
	case "", "2": // a new file, and the schema before
		return meta.Put([]byte(schemaKey), []byte(schemaVersion))
	default:
		return fmt.Errorf("its schema is %q, which this version cannot read (it reads 2 and %s): use the version that wrote it", version, schemaVersion)
	}
}

// Close waits for what is being written, refuses what comes after, finishes the scrub, and closes the file. Only the
// first call does anything.
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
	<-s.committed
	s.scrub.close()
	return errors.Join(s.journal.close(), s.db.Close()) // the database waits for its readers
}

// Ping reports whether the store can be read and written as far as is known: nil, or an error that wraps
// conversation.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.brokenBy(); err != nil {
		return err
	}
	return s.view(ctx, func(*reading) error { return nil })
}

// view runs a function in a transaction that reads, once its request is admitted: it sees one moment.
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
	s.readers.RLock()
	defer s.readers.RUnlock()
	err := s.db.View(func(tx *bbolt.Tx) error {
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

func unavailable(err error) error { return fmt.Errorf("%w: %w", conversation.ErrUnavailable, err) }
