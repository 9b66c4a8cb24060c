package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// watchInterval is the time between two checks of the store's files and faults. So the beginning and the end of a fault
// are noticed within 5 s. A check takes some 10 µs while the store has no fault.
const watchInterval = 2 * time.Second

// watch checks the store until it is closed.
func (s *Store) watch(interval time.Duration) {
	defer close(s.watched)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.check()
		case <-s.quit:
			return
		}
	}
}

// check checks whether the files are at their paths, and whether faults have ended.
func (s *Store) check() {
	s.checkPlaces()
	if s.health.err(full) != nil {
		s.probeRoom()
	} else if err := s.journal.keepRoom(); err != nil {
		_ = s.health.set(full, err)
	}
	if s.health.err(failing) != nil {
		_ = s.run(context.Background(), (*writing).probe) // if it is committed, the committer ends the fault
	}
	if s.health.err(unjournalled) != nil && s.journal.clean() == nil {
		s.health.clear(unjournalled)
	}
}

// probe writes a value that nobody reads, to find out whether writing works.
func (w *writing) probe() error {
	return w.put(metaBucket, []byte(probeKey), []byte(time.Now().UTC().Format(time.RFC3339)))
}

// checkPlaces sets the fault moved if a file of the store is no longer at its path, and ends the fault when both files
// are back. The committer checks the database before each batch too. If the journal is gone, the next check writes it
// again from memory.
func (s *Store) checkPlaces() {
	if err := inPlace(s.path, s.opened); err != nil {
		_ = s.health.set(moved, err)
		return
	}
	err := s.journal.inPlace()
	if err != nil && s.health.err(moved) != nil {
		err = s.journal.restore()
	}
	if err != nil {
		_ = s.health.set(moved, err)
		return
	}
	s.health.clear(moved)
}

// inPlace returns an error if path does not lead to the opened file. It returns nil if the path cannot be checked.
func inPlace(path string, opened os.FileInfo) error {
	now, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("put the file back, or restart the server: %w", err)
	case err == nil && !os.SameFile(now, opened):
		return fmt.Errorf("put the file back, or restart the server: %s is another file than the open one", path)
	}
	return nil
}
