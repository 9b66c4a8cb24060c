package embedded

import (
	"fmt"
	"log/slog"
	"sync"

	"parley/conversation"
)

// fault is a kind of fault of the store. A store can have several faults at once. [Store.Ping] returns the first of this list.
type fault int

const (
	broken       fault = iota // bbolt's state in memory may differ from the file; ends only when the file is opened again
	moved                     // a file of the store is no longer at its path
	damaged                   // a part of the file cannot be read
	failing                   // the last commit failed
	unjournalled              // the last write of live text failed
	full                      // the disk has no room for the reserve (see reserve.go)
	faults                    // the number of kinds
)

// faultErrors has the error that callers get for each kind of fault.
var faultErrors = [faults]error{
	broken:       conversation.ErrStoreFailed,
	moved:        conversation.ErrStoreMoved,
	damaged:      conversation.ErrStoreDamaged,
	failing:      conversation.ErrStoreFailed,
	unjournalled: conversation.ErrStoreFailed,
	full:         conversation.ErrStoreFull,
}

// health holds the faults that the store has now. Its methods may be called from any goroutine.
type health struct {
	log *slog.Logger // constant

	mu   sync.Mutex
	errs [faults]error // guarded by mu; nil for a fault that the store does not have
}

// set records that the store has a fault, and logs a fault that is new. It returns the error for callers, which wraps cause. A
// second call for the same fault replaces the cause, except for broken: its first cause explains the later ones.
func (h *health) set(f fault, cause error) error {
	err := fmt.Errorf("%w: %w", faultErrors[f], cause)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errs[f] == nil {
		h.log.Error("the store has a fault", "error", err)
	} else if f == broken {
		return h.errs[f]
	}
	h.errs[f] = err
	return err
}

// clear records that the store no longer has a fault, and logs this if the store had it.
func (h *health) clear(f fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errs[f] == nil {
		return
	}
	h.errs[f] = nil
	h.log.Info("a fault of the store has ended", "fault", faultErrors[f]) // the log recognises a fault by its error
}

// err returns the error of the first fault of the list that the store has; nil for none. Without arguments, the list has all
// kinds.
func (h *health) err(list ...fault) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(list) == 0 {
		for _, err := range h.errs {
			if err != nil {
				return err
			}
		}
	}
	for _, f := range list {
		if h.errs[f] != nil {
			return h.errs[f]
		}
	}
	return nil
}
