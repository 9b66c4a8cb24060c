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

// OnBusy decides how a send to a busy session proceeds.
type OnBusy string

// The choices; Enqueue is the default.
const (
	Enqueue   OnBusy = "enqueue"   // waits in the queue, first come, first served
	Reject    OnBusy = "reject"    // is refused with ErrSessionBusy
	Interrupt OnBusy = "interrupt" // goes to the head of the queue; package turn cancels the live reply
)

// QueuePlaces is the maximum number of sends that wait for one session. A person types fewer messages within the queue
// timeout of 30 s. A client that sends in a loop is soon refused.
const QueuePlaces = 32

// Idempotency lets the store recognise a repeated request. The store keeps the key and the digest with the effect of
// the request, for IdempotencyLifetime or until the session is gone. It keeps nothing of a refused request. The same
// key with another digest gives ErrIdempotencyConflict.
type Idempotency struct {
	Key    string
	Digest [32]byte // of the request
}

// IdempotencyLifetime is the time for which the store recognises a repeated request. It equals Lifetime, because a
// request has no effect after its session has expired.
const IdempotencyLifetime = 24 * time.Hour

// TurnStore begins and ends turns.
type TurnStore interface {
	// BeginTurn begins a turn if the session is free and the window can hold the message: it writes the message and an empty,
	// streaming reply, and makes the session busy. If the session is busy, OnBusy decides whether BeginTurn takes a place in
	// the queue or returns ErrSessionBusy. If Session.Window cannot hold the message (window.Size.Check), BeginTurn returns
	// *OverflowError and writes nothing. If ctx carries an admission (auth.Admission), BeginTurn reserves window.Size.Estimate
	// tokens for the turn, or returns the admission's error. BeginTurn returns an *auth.QuotaError if the message does not fit the quota StoredBytes of
	// auth.LimitsOf(ctx), which the reply may exceed. It also returns an *auth.QuotaError if the tier enforces the tokens of
	// the month and the owner has used them up. If an earlier request with the same Idempotency began a turn, BeginTurn returns
	// Replayed and begins nothing, even if the session is busy. When a turn begins, waiters with the same Idempotency-Key are
	// granted at once, so that their next BeginTurn returns Replayed.
	BeginTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
	// LeaveQueue removes a waiter from the queue. If the session was just granted to the waiter, LeaveQueue frees the
	// session. It returns nil for an unknown waiter.
	LeaveQueue(ctx context.Context, owner Owner, sessionID, waiter string) error
	// EndTurn ends a turn. It stores the final reply and adds the reply's usage to the usage of the session. It settles
	// the turn's reservation with the total usage, and grants the session to the next waiter. If the turn has ended
	// already, EndTurn changes nothing. It returns ErrFenced with the stored message; that message is empty if the
	// store has lost the reply. EndTurn returns ErrSessionNotFound if the session was deleted or has expired. Even
	// then, the first EndTurn with the turn's key counts the usage, durably and only once.
	EndTurn(ctx context.Context, key TurnKey, reply Message, timing Timing) (Message, error)
	// ClearMessages removes all messages and the summary of a session. It sets Head and Cleared to a new id, which is
	// greater than the ids of all removed messages. If the session is busy, ClearMessages removes nothing. It takes a
	// place at the head of the queue, like BeginTurn with Interrupt, and returns Queued.
	ClearMessages(ctx context.Context, owner Owner, sessionID, waiter string) (Cleared, error)
	// Journal stores new text of live replies. It ignores text of turns that have ended. The text survives a crash of
	// the process, but perhaps not a crash of the machine.
	Journal(ctx context.Context, batch []stream.Segment[TurnKey]) error
	// EndOrphans ends the turns of nodes that are gone, and returns the number of turns that it ended. The replies end as
	// interrupted, with the journalled text and an unknown timing. The function count returns the number of tokens of a
	// text. If the session of a turn is gone too, EndOrphans still settles the usage; if the text is gone, it settles the
	// usage of an empty text.
	EndOrphans(ctx context.Context, count func(text string) int) (int, error)
}

// NewTurn is a message that begins a turn.
type NewTurn struct {
	SessionID string
	Role      Role // User or System
	Content   string
	Tokens    int // number of tokens of Content
	Metadata  json.RawMessage
	OnBusy    OnBusy
	// Waiter names this send in the session's queue. It is unique, and stays the same when the send calls BeginTurn again
	// after the grant.
	Waiter      string
	Idempotency *Idempotency // nil for none
	// Prepared may be nil. A store may call it once, before BeginTurn returns, with the turn that BeginTurn is about to make
	// durable. It must return at once. The turn has begun only if BeginTurn returns a turn with the same Key: the write may
	// fail, or another attempt may begin another turn.
	Prepared func(TurnStart)
}

// TurnStart is the result of BeginTurn: a turn that has begun, or the reason why no turn has begun.
type TurnStart struct {
	// Queued is set if the session was busy. Replayed is set if an earlier request began the turn. If Queued or
	// Replayed is set, all other fields are empty.
	Queued   *Queued
	Replayed *Replayed

	Key     TurnKey
	Session Session // after the turn has begun
	Message Message // the new message of the user or the system
	Reply   Message // the new reply: streaming, without text
	// Previous is the session's Head before the turn: the id of the message before Message, or Cleared; "" if Head was
	// empty.
	Previous string
	// Summary, History and Index are the fields of [Context] for the messages before Message.
	Summary Summary
	History []Message
	Index   []Indexed
}

// Context returns the data for planning the turn's window. The counts in its Session do not include the turn.
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
	// Granted is closed when the waiter should call BeginTurn or ClearMessages again: the session is free for this
	// waiter, or gone. For a waiter that interrupts, Granted is also closed when another turn has begun first; the next
	// call then returns the new live reply. Granted may be closed too early; the next call then returns Queued again.
	Granted <-chan struct{}
	// Live is the id of the reply that is being generated; "" if there is none.
	Live string
}

// TurnKey identifies a turn. Its Fence lets the store refuse writes after the turn has ended.
type TurnKey struct {
	Owner     Owner
	SessionID string
	ReplyID   string
	Fence     int64 // the fencing token of this turn
}

// Timing holds durations of a reply, measured from the beginning of its turn; 0 means unknown. The usage counts them in
// milliseconds, rounded up.
type Timing struct {
	FirstToken time.Duration // until the first text of the reply; 0 also if the reply has no text
	Duration   time.Duration // until the end of the reply
}

// Cleared is the result of ClearMessages. If Queued is set, the clear must wait, and no message was removed.
type Cleared struct {
	Count   int     // number of removed messages
	Session Session // after the clear
	Queued  *Queued
}
