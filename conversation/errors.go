package conversation

import (
	"errors"
	"fmt"

	"parley/stream"
)

// The errors that callers can tell apart. Stores return them too, wrapped or not.
var (
	ErrSessionNotFound = errors.New("the session does not exist or has expired")
	ErrMessageNotFound = errors.New("the message does not exist")
	ErrSessionBusy     = errors.New("the session is busy with another message")
	// ErrIdempotencyConflict says that an Idempotency-Key was used before, for another request.
	ErrIdempotencyConflict = errors.New("the idempotency key was used for another request")
	// ErrFenced says that another node has ended the turn.
	ErrFenced = errors.New("the turn was already ended")
	// ErrStale says that a summary was made from messages that are gone, or that another summary was stored first.
	ErrStale = errors.New("the summary is out of date")
	// ErrUnavailable says that the store cannot be reached or cannot write. A later try may succeed.
	ErrUnavailable = errors.New("the service is unavailable")
	// ErrDraining is ErrUnavailable, because this server is shutting down.
	ErrDraining = fmt.Errorf("%w: the server is shutting down", ErrUnavailable)
	// ErrReplyLost is ErrUnavailable: the store does not have the reply. A fail-over lost it, or the history was cleared before
	// this node knew its ending. A repeat with the same Idempotency-Key finds out which.
	ErrReplyLost = fmt.Errorf("%w: the store has lost the reply", ErrUnavailable)
	// ErrCancelPending says that a cancel was accepted, but the model's request was not closed in time.
	ErrCancelPending = errors.New("the reply has not stopped yet")
	// ErrNoPosition says that a client asks for a view that begins after something that the session never had.
	ErrNoPosition = errors.New("the position is ahead of everything in the session")

	// ErrHistoryCleared is the cause that stops a reply because its session's history is being cleared. No caller sees it.
	ErrHistoryCleared = fmt.Errorf("%w: its history is being cleared", stream.ErrCancelled)
)

// OverflowError says that the context window cannot hold a message. CurrentTokens counts the prompt and the reply room.
type OverflowError struct {
	CurrentTokens, MaxTokens int
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("the context window is exceeded: %d tokens of %d", e.CurrentTokens, e.MaxTokens)
}
