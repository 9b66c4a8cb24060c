package conversation

import (
	"context"
	"time"
)

// Store keeps sessions and messages. Each method is one atomic operation over all nodes: it happens completely or not at
// all, and its effect is durable when it returns nil. If ctx carries the admission of a request (auth.Admission), the
// operation admits the request first.
//
// Methods may be called from any goroutine. Another owner's session, an expired one and an unknown one all give
// ErrSessionNotFound. An error that this package does not define means that the store failed; it wraps ErrUnavailable if
// a retry may succeed. The store's own clock sets ids and times. They never go back within a session.
//
// Usage is counted in the same operation as the event, in the hour of the event. One count differs: the duration of a
// session counts in the hour of its creation. [UsageOfSession], [UsageOfTurnStart], [UsageOfTurnEnd] and [UsageOfSummary]
// return what each operation counts. Usage buckets outlive their sessions: they are kept for usage.RetentionHours hours.
type Store interface {
	SessionStore
	TurnStore
	ContextStore
	UsageStore
}

// Nodes are the operations that a store adds if several processes, the nodes, share it. A store that only one process
// uses has no Nodes: that process learns of every change from its own calls.
//
// A node follows each session that it shows to viewers or writes a reply in. The store notifies the node when the session
// changes. It may send needless notifications and, rarely, lose one. A wake-up only tells the node to poll. Poll returns
// what has changed, so a lost wake-up costs seconds and never text.
//
// In a store with nodes, the operations of Store have further duties. Operations that change a session (BeginTurn,
// EndTurn, EndOrphans, ClearMessages, DeleteSession, SaveSummary, Journal) notify the nodes that follow it. Operations
// that want a live reply to stop (BeginTurn with Interrupt, ClearMessages, StopReply) record that with the turn and
// notify the turn's node. BeginTurn records its node with the turn and recognises its Waiter, so that a retry after a
// lost response finds the same turn. Every node calls EndOrphans every second; EndOrphans ends the turns of nodes that
// are gone.
//
// Methods may be called from any goroutine.
type Nodes interface {
	// Join makes this process a node until the store is closed. The node counts as alive while it sends heartbeats.
	// notify is called with a session's id from any goroutine and must not block; "" means that any session may have
	// changed, because the connection to the store was lost meanwhile.
	Join(ctx context.Context, notify func(sessionID string)) error
	// Follow subscribes this node to a session's wake-ups for FollowLease, and then returns the session.
	Follow(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// Poll returns the changes of sessions, in the order of followed, and follows them for another FollowLease.
	Poll(ctx context.Context, followed []Followed) ([]Update, error)
	// StopReply returns a message. If it is a live reply, StopReply also tells its node to stop it.
	StopReply(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
	// ResumeTurn returns the turn that an earlier BeginTurn began, although its response was lost. The turn must belong
	// to this node and be live. Otherwise ResumeTurn returns ErrMessageNotFound, and the waiter loses its place in the
	// queue.
	ResumeTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
}

// FollowLease is the time for which a node gets a session's wake-ups after Follow or Poll. It is four polls of an idle
// session, so that a lost poll does not end the wake-ups, and short enough that a dead node costs little.
const FollowLease = 20 * time.Second

// Followed is a session that a node follows, with the offset that the node has reached in its live reply.
type Followed struct {
	Owner     Owner
	SessionID string
	Reply     string // id of the reply; "" for none
	Offset    int    // in the reply's text, in bytes: the node has the text before it
}

// Update describes the current state of a followed session.
type Update struct {
	// Gone means that the session no longer exists. At is the time of that finding, by the store's clock: the session
	// expired if At is Session.ExpiresAt or later, otherwise it was deleted. The other fields are then unset.
	Gone    bool
	At      Time
	Session Session
	// Text is the journalled text of Followed.Reply from Offset on, if that reply is still live.
	Text []byte
	// Stop is the reason why the live reply should stop; "" if it should go on.
	Stop Stop
	// Summary is the session's summary, without its text.
	Summary Summary
}

// Stop is the reason why a live reply should stop; "" if it should go on.
type Stop string

// The reasons to stop.
const (
	StopCancelled Stop = "cancelled" // by a cancel, or by a send with Interrupt
	StopCleared   Stop = "cleared"   // the history is being cleared
)
