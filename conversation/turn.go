package conversation

import (
	"context"
	"encoding/json"
	"time"

	"parley/stream"
)

// NewMessage is a message to send.
type NewMessage struct {
	SessionID string
	Role      Role // User or System
	Content   string
	Metadata  json.RawMessage
	OnBusy    OnBusy
	// Idempotency recognises the send if it is repeated; nil for none.
	Idempotency *Idempotency
}

// OnBusy says what a send does when the session is busy.
type OnBusy string

// The choices; Enqueue is the default.
const (
	Enqueue   OnBusy = "enqueue"   // waits in the queue, first come, first served
	Reject    OnBusy = "reject"    // is refused with ErrSessionBusy
	Interrupt OnBusy = "interrupt" // goes to the head of the queue; the caller cancels the live reply
)

// QueuePlaces is how many sends can wait for one session: more than people type in a queue's 30 s, few enough that a client
// in a loop is refused.
const QueuePlaces = 32

// Idempotency recognises a repeated request. It is remembered together with the effect of the request, for
// IdempotencyLifetime or until the session is gone; a refused request is not remembered. The same key with another digest is
// ErrIdempotencyConflict.
type Idempotency struct {
	Key    string
	Digest [32]byte // of the request
}

// IdempotencyLifetime is how long a request is recognised: as long as a session can live.
const IdempotencyLifetime = 24 * time.Hour

// TurnStore begins and ends turns.
type TurnStore interface {
	// BeginTurn begins a turn if the session is free and the window can hold the message: it writes the message and an
	// empty, streaming reply, and makes the session busy. If the session is busy, it takes a place in the queue or returns
	// ErrSessionBusy, as OnBusy says. Where window.Check refuses the message, it returns *OverflowError and changes nothing.
	// If ctx carries an admission (auth.Admission), it reserves what window.Estimate says that the turn may use, or returns
	// the admission's error. If the same request began a turn before, it returns Replayed, whether the session is busy or
	// not, and begins nothing; a waiter whose turn has begun this way is granted the session.
	BeginTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
	// LeaveQueue gives up a place in the queue, or the session if it was just granted. It is no error if there is neither.
	LeaveQueue(ctx context.Context, owner Owner, sessionID, waiter string) error
	// EndTurn ends a turn: it stores the reply as it ended, adds its usage to the session's, settles the turn's reservation
	// by the usage's total, and grants the session to the next waiter. Ending a turn again changes nothing and returns
	// ErrFenced with the message as it was decided. It returns ErrSessionNotFound if the session was deleted or has
	// expired. Even then the usage is counted, durably and once, by the first EndTurn with the turn's key.
	EndTurn(ctx context.Context, key TurnKey, reply Message, timing Timing) (Message, error)
	// ClearMessages removes all messages and the summary of a session, and sets Head and Cleared to a new id, above the ids
	// of all messages that it ever had. Like BeginTurn with Interrupt it waits for a live turn: then it returns Queued and
	// has changed nothing.
	ClearMessages(ctx context.Context, owner Owner, sessionID, waiter string) (Cleared, error)
	// Journal stores new text of live replies. It ignores text of turns that have ended.
	Journal(ctx context.Context, batch []stream.Segment[TurnKey]) error
	// EndOrphans ends turns whose node is gone: as interrupted, with the journalled text, their timing unknown. count counts
	// the tokens of a text. If the session is gone too, the usage is settled all the same, for an empty text if none is
	// left. It returns how many turns it ended.
	EndOrphans(ctx context.Context, count func(text string) int) (int, error)
}

// NewTurn is a message that begins a turn.
type NewTurn struct {
	SessionID string
	Role      Role // User or System
	Content   string
	Tokens    int // of Content
	Metadata  json.RawMessage
	OnBusy    OnBusy
	// Waiter names this send in the session's queue. It is unique, and stays the same when the send tries again after it
	// was granted the session.
	Waiter      string
	Idempotency *Idempotency // nil for none
}

// TurnStart is a turn that has begun, or why it has not.
type TurnStart struct {
	// Queued is set if the session was busy, Replayed if the same request began a turn before. Then nothing else is set.
	Queued   *Queued
	Replayed *Replayed

	Key     TurnKey
	Session Session // as it is now
	Message Message // the user's or system's
	Reply   Message // streaming, empty
	// Previous is the session's Head before Message: the message before it, or Cleared; "" if Message is the first.
	Previous string
	// Summary, History and Index are those of [Context], for the messages before Message.
	Summary Summary
	History []Message
	Index   []Indexed
}

// Context returns what the turn's window is planned from. Its session is as it was before the turn.
func (b *TurnStart) Context() Context {
	session := b.Session
	session.MessageCount -= 2
	session.HistoryTokens -= b.Message.TokensInPrompt()
	return Context{Session: session, Summary: b.Summary, History: b.History, Index: b.Index}
}

// Replayed names the turn that the first request with the same Idempotency-Key began.
type Replayed struct {
	SentID  string // the user's or system's message
	ReplyID string // the reply
}

// Queued is a place in a session's queue.
type Queued struct {
	// Granted is closed when the waiter should try again: it is its turn, or the session is gone. For a waiter that
	// interrupts it is also closed when another turn has begun first, so that the waiter sees whose. It may be closed early.
	Granted <-chan struct{}
	// Live is the reply that is being written; "" for none.
	Live string
}

// TurnKey names a turn and carries the right to write it.
type TurnKey struct {
	Owner     Owner
	SessionID string
	ReplyID   string
	Fence     int64 // the session's fencing token of this turn
}

// Timing is how long a reply took, from the beginning of its turn; 0 where that is unknown. It is counted in milliseconds,
// rounded up.
type Timing struct {
	FirstToken time.Duration // to its first text; 0 also if there was none
	Duration   time.Duration // to its end
}

// Cleared says what clearing a history did. If Queued is set, it has to wait and has changed nothing.
type Cleared struct {
	Count   int     // removed messages
	Session Session // as it is now
	Queued  *Queued
}
