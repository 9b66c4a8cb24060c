package embedded

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"parley/conversation"
)

// This file starts the transactions of bbolt. bbolt trusts its file, which it maps into memory. If the file is damaged while the
// server runs, bbolt panics, faults or reads other records than it should. So no other code of this package calls DB.View,
// DB.Update or DB.Begin:
//
//   - SetPanicOnFault turns a fault of the memory map into a panic, and Store.catch turns panics into a *DamageError.
//   - DB.Update would run bbolt's freepages after a panic. freepages checks the file in a goroutine of its own, and a panic there
//     ends the process. Tx.Rollback does not run it.
//   - If both meta pages are invalid, DB.Begin panics with its locks held, and every later call would wait for ever. So begin
//     reads the meta pages first.
//   - If only the newest meta page is invalid, DB.Begin uses the one before, and so takes back the last transaction. So
//     begin compares the ids of the transactions.

// errStuck is returned after a panic that may have left a lock of bbolt locked.
var errStuck = errors.New("the file was damaged during a call of bbolt: restart the server")

// read runs a read transaction.
func (s *Store) read(run func(*bbolt.Tx) error) (err error) {
	s.readers.RLock()
	defer s.readers.RUnlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer s.catch(&err)
	tx, err := s.begin(false)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it only fails if the transaction is closed
	return run(tx)
}

// write runs a write transaction. After a panic or a damage, the store refuses all later writes, because bbolt's state
// in memory may differ from the file.
func (s *Store) write(run func(*bbolt.Tx) error) (err error) {
	s.writer.Lock()
	defer s.writer.Unlock()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = s.health.set(broken, restart(fmt.Errorf("panic: %v", p)))
		} else if errors.Is(err, conversation.ErrStoreDamaged) {
			err = s.health.set(broken, restart(err))
		}
	}()
	defer s.catch(&err)
	if err := s.checkSize(); err != nil {
		return err
	}
	tx, err := s.begin(true)
	if err != nil {
		return err
	}
	defer s.rollback(tx)
	if err := run(tx); err != nil {
		return err
	}
	id := tx.ID()
	if err := tx.Commit(); err != nil {
		return err
	}
	s.newest.Store(uint64(id))
	return nil
}

// rollback ends a write transaction that is not committed. If the rollback panics, bbolt's lock of the writer stays
// locked, so rollback sets stuck.
func (s *Store) rollback(tx *bbolt.Tx) {
	done := false
	defer func() {
		if !done {
			s.stuck.Store(true)
		}
	}()
	if err := tx.Rollback(); err == nil || errors.Is(err, berrors.ErrTxClosed) {
		done = true
	}
}

// begin starts a transaction. It returns a *DamageError if the newest meta page is damaged.
func (s *Store) begin(write bool) (*bbolt.Tx, error) {
	if s.stuck.Load() {
		return nil, unavailable(errStuck)
	}
	newest := s.newest.Load()
	if err := s.checkMetas(newest); err != nil {
		return nil, err
	}
	begun := false
	defer func() {
		if !begun {
			s.stuck.Store(true)
		}
	}()
	tx, err := s.db.Begin(write)
	begun = true
	if err != nil {
		return nil, err
	}
	id := uint64(tx.ID())
	if write {
		id--
	}
	if id < newest {
		s.rollback(tx)
		return nil, s.damaged(lostMeta(newest), false)
	}
	return tx, nil
}

// metaBuffers holds buffers for the two meta pages.
var metaBuffers = sync.Pool{New: func() any { return new([]byte) }}

// checkMetas reads the two meta pages from the file. It returns a *DamageError unless one of them is valid and has at least the
// transaction newest.
func (s *Store) checkMetas(newest uint64) error {
	buffer := metaBuffers.Get().(*[]byte)
	defer metaBuffers.Put(buffer)
	if need := s.pageSize + metaEnd; len(*buffer) < need {
		*buffer = make([]byte, need)
	}
	n, err := s.file.ReadAt(*buffer, 0)
	if err != nil && n < s.pageSize+metaEnd {
		return s.metaUnreadable(err)
	}
	for _, page := range [][]byte{(*buffer)[:metaEnd], (*buffer)[s.pageSize : s.pageSize+metaEnd]} {
		if m, ok := readMeta(page); ok && m.tx >= newest {
			return nil
		}
	}
	return s.damaged(lostMeta(newest), false)
}

// metaUnreadable returns the error of a failed read of the meta pages.
func (s *Store) metaUnreadable(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return unavailable(err)
	}
	return s.damaged(&DamageError{Page: 0, Fault: fmt.Sprintf("the meta pages cannot be read: %v", err)}, false)
}

func lostMeta(tx uint64) *DamageError {
	return &DamageError{Page: int64(tx % 2), Fault: fmt.Sprintf("the newest meta page, of transaction %d, is invalid", tx)}
}

// checkSize returns a *DamageError if the file has become smaller. Then a commit would write pages beyond its end.
func (s *Store) checkSize() error {
	info, err := s.file.Stat()
	if err != nil {
		return unavailable(err)
	}
	if size := info.Size(); size >= s.size {
		s.size = size
		return nil
	}
	return s.damaged(damageIn("", "", fmt.Sprintf("the file has only %d of %d bytes", info.Size(), s.size)), false)
}
