package conversation

import (
	"context"
	"encoding/json"
	"time"

	"parley/conversation/usage"
	"parley/conversation/window"
	"parley/stream"
)

// Store keeps sessions and messages. Each method is one atomic operation: it happens whole or not at all, also
// against any other and over all nodes, and what it returned without an error is durable (design section 7). Where the
// admission of a request rides in the context (auth.Admission), the operation admits it first.
//
// Its methods may be called from any goroutine. A session of another owner, an expired one and an unknown one are all
// ErrSessionNotFound. An error that is none of this package's means that the store failed; it wraps ErrUnavailable
// where a later try may succeed. The store's own clock stamps ids and times, never below the session's last.
//
// What an owner uses is counted in the same operation as what it counts (design section 2, metrics): in the bucket of
// the hour in which it happens, but the time that a session has lasted in that of its creation. [UsageOfSession],
// [UsageOfTurnStart], [UsageOfTurnEnd] and [UsageOfSummary] say what each operation counts. Buckets outlive their sessions: they are kept
// for usage.RetentionHours hours.
type Store interface {
	// CreateSession makes an empty session, or returns the one that the same request made before.
	CreateSession(ctx context.Context, owner Owner, session NewSession) (SessionCreated, error)
	// Session returns a session.
	Session(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// Sessions returns sessions that have not expired, newest first.
	Sessions(ctx context.Context, owner Owner, query SessionQuery) (SessionPage, error)
	// DeleteSession removes a session with all its messages, its live turn and its queue: those who wait are granted
	// and find it gone. The owner's usage of a turn that was live remains to be settled, by EndTurn or EndOrphans; none
	// of its text remains. It returns the session as it was.
	DeleteSession(ctx context.Context, owner Owner, sessionID string) (Session, error)

	// Messages returns messages of a session, and the session as it was in the same moment. A streaming reply's
	// Content is what was journalled of it, or nothing.
	Messages(ctx context.Context, owner Owner, sessionID string, query MessageQuery) (MessagePage, error)
	// Message returns one message, or ErrMessageNotFound.
	Message(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
	// ClearMessages removes all messages of a session and its summary, and sets its Head and Cleared to a new id, above those of all
	// messages it ever had. It waits its turn like BeginTurn with Interrupt: while a turn is
	// live it returns Queued and has done nothing.
	ClearMessages(ctx context.Context, owner Owner, sessionID, waiter string) (Cleared, error)

	// BeginTurn begins a turn if the session is free and the window can hold the message: it writes the message and an
	// empty, streaming reply, and makes the session busy. If the session is busy, it takes a place in its queue or
	// returns ErrSessionBusy, as OnBusy says. It returns *OverflowError, with nothing changed, where
	// window.Check refuses the message's tokens and overhead. Where an admission rides in ctx (auth.Admission), it then
	// reserves what window.Estimate says that the turn may use, or returns the admission's error. Where the same request began a turn before, it begins none
	// and returns Replayed, whether the session is busy or not; one that waits is granted when that happens.
	BeginTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
	// Context returns what a turn with a message of so many tokens, overhead not included, would begin with; it changes
	// nothing, and refuses no overflow. A reply that is streaming is in the History, with what is journalled of it.
	Context(ctx context.Context, owner Owner, sessionID string, tokens int) (Context, error)
	// MessagesByID returns messages of a session, in the order in which they are named. Those that are not there are left out.
	MessagesByID(ctx context.Context, owner Owner, sessionID string, ids []string) ([]Message, error)
	// LeaveQueue gives up a place in the queue, or the session if it was just granted. It is no error if there is
	// none to give up.
	LeaveQueue(ctx context.Context, owner Owner, sessionID, waiter string) error
	// EndTurn ends the turn that the key names: it stores the reply as it ended, adds its usage to the session's, settles
	// what was reserved for the turn by the usage's total, and grants the session to the next in the queue. Ending a turn
	// again, in whatever state, changes nothing and returns ErrFenced with the message as it was decided; where the session
	// is gone meanwhile (deleted, or expired, whether it was removed or not), ErrSessionNotFound. What the turn used is
	// counted there too, durably, and once: by the first EndTurn with the turn's key, which is told ErrSessionNotFound like
	// all others.
	EndTurn(ctx context.Context, key TurnKey, reply Message, timing Timing) (Message, error)
	// SaveSummary puts a summary in the place of the session's, if that is still the one that ends with the message after ("" for
	// none) and summary.Last lies behind both after and Cleared; otherwise it changes nothing and returns ErrStale. What
	// the summary cost is counted like the usage of a reply, in the session and in the owner's hour, and charged to
	// the owner's tokens of this minute, which may overshoot (limit.Window.Charge).
	SaveSummary(ctx context.Context, owner Owner, sessionID, after string, summary Summary, usage Usage) error
	// SetVectors keeps the vectors of exchanges with the replies that end them, as long as those are there: each takes the
	// place of the one before. What is not in the index is passed over: a reply that was cleared, a session whose policy is not
	// semantic, or one that is gone. Nothing else of the session changes. Vectors can be made anew: they need not be
	// durable before the answer.
	SetVectors(ctx context.Context, owner Owner, sessionID string, vectors []ExchangeVector) error
	// Journal stores new text of live replies. Text of a turn that has ended is ignored.
	Journal(ctx context.Context, batch []stream.Segment[TurnKey]) error
	// EndOrphans ends the turns that nobody is going to end any more, because their node is gone: as Interrupted, with
	// the journalled text, its timing unknown. count counts the tokens of a text. Where the session is gone too, the
	// turn's usage is settled in the same way, as of an empty text if none is left. It returns how many there were.
	EndOrphans(ctx context.Context, count func(text string) int) (int, error)

	// RemoveExpired removes the sessions whose time has come, as DeleteSession does, and returns them, and when the next one
	// will expire (0 if there is none).
	// Buckets of usage that are older than usage.RetentionHours are removed as well, not necessarily at once.
	RemoveExpired(ctx context.Context) (removed []OwnedSession, next Time, err error)

	// Usage returns what an owner used in the hours from from on, up to and not including to; none of the hours that
	// ended usage.RetentionHours ago or earlier. Each request that was admitted before, its own too, is among the Requests of its
	// hour; these counts need be durable only within a second.
	Usage(ctx context.Context, owner Owner, from, to usage.Hour) (UsageSpan, error)
}

// Timing is how long a reply took from the beginning of its turn; 0 where it is unknown. It is counted in milliseconds,
// rounded up.
type Timing struct {
	FirstToken time.Duration // to its first text; 0 also if there was none
	Duration   time.Duration // to its end
}

// UsageSpan is what an owner used, all of one moment.
type UsageSpan struct {
	// Now is the hour of that moment, by the store's clock.
	Now usage.Hour
	// Hours are in their order. Those in which nothing was counted, and none of whose sessions exist, are left out.
	Hours []usage.Hourly
	// Active is how many sessions exist, whenever they were created.
	Active int
}

// NewSession is what a session is made of.
type NewSession struct {
	UserID      string
	Metadata    json.RawMessage // nil for none
	Context     ContextConfig
	Idempotency *Idempotency // nil for none
}

// SessionCreated is a session that was made: just now, or Replayed, by the same request before.
type SessionCreated struct {
	Session  Session
	Replayed bool
}

// Idempotency recognises a request that is repeated (design section 2, Idempotency-Key). It is remembered with what took
// effect, for IdempotencyLifetime or as long as the session if that is shorter; a request that was refused is not. The
// same key with another digest is ErrIdempotencyConflict.
type Idempotency struct {
	Key    string
	Digest [32]byte // of the request
}

// IdempotencyLifetime is how long a request is recognised.
const IdempotencyLifetime = 24 * time.Hour

// OwnedSession is a session and whose it is.
type OwnedSession struct {
	Owner   Owner
	Session Session
}

// SessionQuery asks for a page of sessions.
type SessionQuery struct {
	UserID string // only that user's; "" for all
	Before string // only sessions with an id below this, which need not exist; "" for all
	Limit  int    // at least 1
}

// SessionPage is a page of sessions; More says that further ones exist.
type SessionPage struct {
	Sessions []Session
	More     bool
}

// MessageQuery asks for a page of messages.
type MessageQuery struct {
	// From is where the page begins, itself not included unless Inclusive; it need not exist. "" begins at the end
	// that Ascending names.
	From      string
	Inclusive bool
	Ascending bool
	Limit     int // at least 1
}

// MessagePage is a page of messages in the order that was asked for; More says that further ones exist.
type MessagePage struct {
	Session  Session
	Messages []Message
	More     bool
}

// Cleared says what clearing a history did. Queued is set if it has still to wait, with nothing done.
type Cleared struct {
	Count   int
	Session Session // as it is now
	Queued  *Queued
}

// OnBusy says what a send does when the session is busy (design section 2, two sends at once).
type OnBusy string

// What a send can do when the session is busy; Enqueue is the default.
const (
	Enqueue   OnBusy = "enqueue"
	Reject    OnBusy = "reject"
	Interrupt OnBusy = "interrupt" // goes to the head of the queue; the caller cancels what is running
)

// QueuePlaces is how many sends can wait for one session.
const QueuePlaces = 32

// NewTurn is a message that begins a turn.
type NewTurn struct {
	SessionID string
	Role      Role // User or System
	Content   string
	Tokens    int // of Content
	Metadata  json.RawMessage
	OnBusy    OnBusy
	// Waiter names this send in the session's queue: unique, and the same when the send tries again after it was
	// granted the session.
	Waiter      string
	Idempotency *Idempotency // nil for none
}

// TurnStart is a turn that has begun, or a place in the queue.
type TurnStart struct {
	// Queued is set if the session was busy, Replayed if the same request began a turn before; nothing else is then.
	Queued   *Queued
	Replayed *Replayed

	Key     TurnKey
	Session Session // as it is now
	Message Message // the user's or system's
	Reply   Message // streaming, empty
	// Previous is the Head that the session had before Message: the message before it, or Cleared; "" if it is the first.
	Previous string
	// Summary, History and Index are as in Context, of the messages before Message.
	Summary Summary
	History []Message
	Index   []Indexed
}

// Context is what a window is planned from: bounded, however long the history is.
type Context struct {
	Session Session
	// Summary is what the session's oldest messages were folded into; the zero value is none.
	Summary Summary
	// History holds the newest messages, oldest first: as many as window.Budget of the session's configuration can hold,
	// and the one that no longer fits, if there is one.
	History []Message
	// Index holds the newest IndexLimit messages, oldest first, where the policy is to choose among them: it is priority or
	// semantic, compression is enabled, and the history does not fit the budget beside the new message. Else it is
	// empty. A reply that is streaming is not in it.
	Index []Indexed
}

// IndexLimit is how many messages a priority or semantic window chooses from.
const IndexLimit = 2000

// Indexed is a message as the window weighs it, without its content. Sessions whose policy is fifo need keep none.
type Indexed struct {
	ID     string
	Role   Role
	Tokens int
	// Skip says that it is never sent: a reply that failed or has no text.
	Skip bool
	// Priority is window.PriorityOf of the metadata.
	Priority float64
	// Terms are those that EndTurn was given with a reply; of a reply that EndOrphans ended, those of its text. Only in
	// sessions whose policy is semantic.
	Terms window.Terms
	// Vector is what SetVectors was given for a reply; nil for none.
	Vector window.Vector
}

// ExchangeVector is what an exchange means, by the reply that ends it.
type ExchangeVector struct {
	Reply  string // its id
	Vector window.Vector
}

// Index returns a message of a session with that policy as it is indexed.
func Index(m *Message, policy RetentionPolicy) Indexed {
	x := Indexed{ID: m.ID, Role: m.Role, Tokens: m.Tokens, Skip: m.neverSent(), Priority: window.PriorityOf(m.Metadata)}
	if policy == Semantic {
		x.Terms = m.Terms
	}
	return x
}

// Summary is what the messages of a session were folded into, from the first to Last (design section 5). The zero value
// is none.
type Summary struct {
	Text   string // as it is sent, its heading included
	Tokens int    // of Text
	Last   string // id of the last message that is in it
	Count  int    // how many messages are in it
	// Replaced is what it took the place of in a prompt, in tokens: the summary before and what was folded.
	Replaced int
}

// Replayed is the turn that a request began when it came first.
type Replayed struct {
	SentID  string // the user's or system's message
	ReplyID string // the reply
}

// Queued is a place in a session's queue.
type Queued struct {
	// Granted is closed when it is the waiter's turn to try again, or the session is gone; for one that interrupts also
	// when a turn began before it, so that it sees whose. It may be closed early.
	Granted <-chan struct{}
	// Live is the reply that is being written, "" if there is none.
	Live string
}

// TurnKey names a turn: whose, which, and by which right it is written.
type TurnKey struct {
	Owner     Owner
	SessionID string
	ReplyID   string // the reply's
	Fence     int64
}
