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
	// Idempotency lets the store recognise the send if it is repeated; nil for none.
	Idempotency *Idempotency
}

// OnBusy decides what happens to a send when the session is busy.
type OnBusy string

// The choices; Enqueue is the default.
const (
	Enqueue   OnBusy = "enqueue"   // waits in the queue, first come, first served
	Reject    OnBusy = "reject"    // is refused with ErrSessionBusy
	Interrupt OnBusy = "interrupt" // goes to the head of the queue; package turn cancels the live reply
)

// QueuePlaces is the number of sends that can wait for one session: more than people type within the queue timeout of
// 30 s, few enough that a client in a loop is refused.
const QueuePlaces = 32

// Idempotency lets the store recognise a repeated request. The store keeps it together with the effect of the request,
// for IdempotencyLifetime or until the session is gone. It does not keep refused requests. The same key with another
// digest gives ErrIdempotencyConflict.
type Idempotency struct {
	Key    string
	Digest [32]byte // of the request
}

// IdempotencyLifetime is the time for which a request is recognised: the longest life of a session.
const IdempotencyLifetime = 24 * time.Hour

// TurnStore begins and ends turns.
type TurnStore interface {
	// BeginTurn begins a turn if the session is free and the window can hold the message: it writes the message and an
	// empty, streaming reply, and makes the session busy. If the session is busy, OnBusy decides whether it takes a place
	// in the queue or returns ErrSessionBusy. If window.Check refuses the message, it returns *OverflowError and changes
	// nothing. If ctx carries an admission (auth.Admission), it reserves window.Estimate tokens for the turn, or returns
	// the admission's error. If the same request began a turn before, it returns Replayed and begins nothing, whether the
	// session is busy or not. When a turn begins, waiters with the same Idempotency-Key are granted at once, so that they
	// get Replayed.
	BeginTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
	// LeaveQueue gives up a place in the queue, or the session if it was just granted. It returns nil if the waiter has
	// neither.
	LeaveQueue(ctx context.Context, owner Owner, sessionID, waiter string) error
	// EndTurn ends a turn: it stores the final reply, adds its usage to the session's, settles the turn's reservation
	// with the total usage, and grants the session to the next waiter. Ending a turn again changes nothing and returns
	// ErrFenced with the stored message, which is empty if the store has lost the reply. It returns ErrSessionNotFound if
	// the session was deleted or has expired. Even then the first EndTurn with the turn's key counts the usage, durably
	// and once.
	EndTurn(ctx context.Context, key TurnKey, reply Message, timing Timing) (Message, error)
	// ClearMessages removes all messages and the summary of a session, and sets Head and Cleared to a new id, above the
	// ids of all messages that it ever had. If the session is busy, it changes nothing and returns Queued, with a place
	// at the head of the queue, like BeginTurn with Interrupt.
	ClearMessages(ctx context.Context, owner Owner, sessionID, waiter string) (Cleared, error)
	// Journal stores new text of live replies. It ignores text of turns that have ended.
	Journal(ctx context.Context, batch []stream.Segment[TurnKey]) error
	// EndOrphans ends the turns of nodes that are gone, as interrupted, with the journalled text and an unknown timing.
	// count returns the number of tokens of a text. If the session is gone too, it still settles the usage, for an empty
	// text if none is left. It returns the number of turns that it ended.
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
	// Waiter names this send in the session's queue. It is unique, and stays the same when the send calls BeginTurn again
	// after the grant.
	Waiter      string
	Idempotency *Idempotency // nil for none
}

// TurnStart is the result of BeginTurn: a turn that has begun, or the reason why none has.
type TurnStart struct {
	// Queued is set if the session was busy. Replayed is set if the same request began a turn before. If either is set,
	// the other fields are empty.
	Queued   *Queued
	Replayed *Replayed

	Key     TurnKey
	Session Session // after the change
	Message Message // of the user or the system
	Reply   Message // streaming, empty
	// Previous is the session's Head before the turn: the id of the message before Message, or Cleared; "" if there is
	// neither.
	Previous string
	// Summary, History and Index are the fields of [Context] for the messages before Message.
	Summary Summary
	History []Message
	Index   []Indexed
}

// Context returns the data that the turn's window is planned from. Its session has the counts from before the turn.
func (b *TurnStart) Context() Context {
	session := b.Session
	session.MessageCount -= 2
	session.HistoryTokens -= b.Message.TokensInPrompt()
	return Context{Session: session, Summary: b.Summary, History: b.History, Index: b.Index}
}

// Replayed identifies the turn that the first request with the same Idempotency-Key began.
type Replayed struct {
	SentID  string // id of the user's or system's message
	ReplyID string // id of the reply
}

// Queued is a place in a session's queue.
type Queued struct {
	// Granted is closed when the waiter should call BeginTurn again: the session is free for it, or gone. A waiter that
	// interrupts also gets it when another turn has begun first, so that it learns the new live reply. It may be closed
	// early.
	Granted <-chan struct{}
	// Live is the id of the reply that is being generated; "" if there is none.
	Live string
}

// TurnKey identifies a turn. Its Fence lets the store refuse writes after the turn has ended.
type TurnKey struct {
	Owner     Owner
	SessionID string
	ReplyID   string
	Fence     int64 // the session's fencing token of this turn
}

// Timing holds durations of a reply, measured from the beginning of its turn; 0 means unknown. They are counted in
// milliseconds, rounded up.
type Timing struct {
	FirstToken time.Duration // until its first text; 0 also if it has no text
	Duration   time.Duration // until its end
}

// Cleared is the result of ClearMessages. If Queued is set, the clear must wait and has changed nothing.
type Cleared struct {
	Count   int     // number of removed messages
	Session Session // after the change
	Queued  *Queued
}
