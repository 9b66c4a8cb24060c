package conversation

import (
	"errors"
	"fmt"

	"parley/stream"
)

// Callers can distinguish these errors with errors.Is. A store returns some of these errors too, possibly wrapped.
var (
	ErrSessionNotFound = errors.New("the session does not exist or has expired")
	ErrMessageNotFound = errors.New("the message does not exist")
	ErrSessionBusy     = errors.New("the session is busy with another message")
	// ErrIdempotencyConflict means that the Idempotency-Key was used before, for a different request.
	ErrIdempotencyConflict = errors.New("the idempotency key was used for another request")
	// ErrFenced means that the turn has ended already, usually because another node ended it.
	ErrFenced = errors.New("the turn was already ended")
	// ErrStale means that a new summary cannot be stored: its messages were cleared, or another summary was stored first.
	ErrStale = errors.New("the summary is out of date")
	// ErrUnavailable means that the store cannot be reached or cannot write. A retry may succeed. Code that returns it calls
	// Unavailable, or uses one of the errors below, so that each 503 has a cause.
	ErrUnavailable = errors.New("the service is unavailable")
	// ErrDraining wraps ErrUnavailable: this server is shutting down.
	ErrDraining = fmt.Errorf("%w: the server is shutting down", ErrUnavailable)
	// ErrStoreTimeout wraps ErrUnavailable: the store did not respond in time.
	ErrStoreTimeout = fmt.Errorf("%w: the store did not respond in time", ErrUnavailable)
	// ErrStoreBusy wraps ErrUnavailable: this node has more calls of the store at once than the store handles in time.
	ErrStoreBusy = fmt.Errorf("%w: the store is busy", ErrUnavailable)
	// ErrTurnUnknown wraps ErrUnavailable: it is unknown whether the turn has begun. A repeat with the same
	// Idempotency-Key shows whether it has.
	ErrTurnUnknown = fmt.Errorf("%w: it is unknown whether the turn has begun", ErrUnavailable)
	// ErrEndingNotStored wraps ErrUnavailable: the store has not accepted the ending of the reply in time. The node tries
	// again, or another node ends the reply.
	ErrEndingNotStored = fmt.Errorf("%w: the reply's ending is not stored yet", ErrUnavailable)
	// ErrInflightLimit wraps ErrUnavailable: this node has too many sends in flight.
	ErrInflightLimit = fmt.Errorf("%w: too many sends are in flight", ErrUnavailable)
	// ErrInflightShare wraps ErrUnavailable: the owner's sends take too large a share of those that this node may have
	// in flight.
	ErrInflightShare = fmt.Errorf("%w: too many sends of the account are in flight", ErrUnavailable)
	// ErrReplyLost wraps ErrUnavailable: the store does not have the reply. Either a fail-over lost the reply, or the
	// history was cleared before this node learned how the reply ended. A repeat of the send with the same
	// Idempotency-Key shows which of the two happened.
	ErrReplyLost = fmt.Errorf("%w: the store has lost the reply", ErrUnavailable)
	// ErrStoreFull wraps ErrUnavailable: the store has no room for more data. Deletions and ends of replies may still work.
	ErrStoreFull error = &StoreFault{"store_full", "the disk of the store is full"}
	// ErrStoreMoved wraps ErrUnavailable: the store's file was removed or replaced while the store had it open.
	ErrStoreMoved error = &StoreFault{"store_moved", "the file of the store was removed or replaced"}
	// ErrStoreDamaged wraps ErrUnavailable: the store's file contains data that no store has written.
	ErrStoreDamaged error = &StoreFault{"store_damaged", "the file of the store is damaged"}
	// ErrStoreFailed wraps ErrUnavailable: writes of the store fail for a reason that no error above describes.
	ErrStoreFailed error = &StoreFault{"store_failed", "the store cannot be written"}
	// ErrCancelPending means that a cancel was accepted, but the request to the model was not closed within 5 s.
	ErrCancelPending = errors.New("the reply has not stopped yet")
	// ErrNoPosition means that a client sent an impossible position: it is ahead of the newest message, or beyond the
	// text of a message that will not change.
	ErrNoPosition = errors.New("the position is ahead of everything in the session")

	// ErrHistoryCleared is the cause with which a clear of the history stops a live reply. No caller gets this error.
	ErrHistoryCleared = fmt.Errorf("%w: its history is being cleared", stream.ErrCancelled)
)

// StoreFault is a fault of the store that lasts until an operator repairs it, or until its cause ends. It wraps ErrUnavailable.
// While it lasts, most operations fail with it, so a log needs only one line a minute about it.
type StoreFault struct {
	Name string // for metrics and logs
	text string
}

func (f *StoreFault) Error() string { return f.text }

// Unwrap returns ErrUnavailable.
func (f *StoreFault) Unwrap() error { return ErrUnavailable }

// Unavailable returns an error that wraps err and ErrUnavailable. If err is a timeout, it wraps ErrStoreTimeout. A store
// calls Unavailable if it cannot be reached or cannot write.
func Unavailable(err error) error {
	type timeout interface {
		error
		Timeout() bool
	}
	if t, ok := errors.AsType[timeout](err); ok && t.Timeout() {
		return fmt.Errorf("%w: %w", ErrStoreTimeout, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// OverflowError means that the context window cannot hold a message. CurrentTokens is the size of the prompt with the
// whole history, plus the reply room. MaxTokens is the size of the window.
type OverflowError struct {
	CurrentTokens, MaxTokens int
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("the context window is exceeded: %d tokens of %d", e.CurrentTokens, e.MaxTokens)
}
