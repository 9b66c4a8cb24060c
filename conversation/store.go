package conversation

import (
	"context"
	"time"
)

// Store keeps sessions and messages. Each method is one atomic operation over all nodes: it happens completely or not
// at all. Its effect is durable when it returns nil, except where the method says otherwise. If ctx carries the
// admission of a request (auth.Admission), the operation admits the request first.
//
// Methods may be called from any goroutine. A session of another owner, an expired session and an unknown session all
// give ErrSessionNotFound. An error that is not defined in this package or in package auth means that the store failed.
// It wraps ErrUnavailable if a retry may succeed. The store's own clock sets ids and times. Within a session, ids and
// times never go back.
//
// Usage is counted in the same operation as the event, in the hour of the event. One count differs: the duration of a
// session counts in the hour of its creation. [UsageOfSession], [UsageOfTurnStart], [UsageOfTurnEnd] and
// [UsageOfSummary] return the counts that the operations add. Usage buckets outlive their sessions: they are kept for
// usage.RetentionHours hours.
type Store interface {
	SessionStore
	TurnStore
	ContextStore
	UsageStore
}

// Nodes holds the further operations of a store that several processes share. These processes are called nodes. A store
// for a single process has no Nodes: the process learns of every change from its own calls.
//
// A node follows each session that has viewers or a live reply on this node. When the session changes, the store sends
// the node a wake-up. The store may send needless wake-ups and, rarely, lose one. A wake-up only tells the node to
// poll. Poll returns the current state, so a lost wake-up costs seconds and never text.
//
// In a store with nodes, the operations of Store have further duties. Operations that change a session (BeginTurn,
// EndTurn, EndOrphans, ClearMessages, DeleteSession, SaveSummary, Journal) send a wake-up to the nodes that follow the
// session. Operations that stop a live reply (BeginTurn with Interrupt, ClearMessages, StopReply) record the reason
// with the turn and send a wake-up to the turn's node. BeginTurn records the node and the Waiter with the turn. So a
// retry after a lost response finds the same turn. Every node calls EndOrphans every second; EndOrphans ends the turns
// of nodes that are gone.
//
// Methods may be called from any goroutine.
type Nodes interface {
	// Join makes this process a node until the store is closed. The node counts as alive while it sends heartbeats. For
	// each wake-up, the store calls notify with the session's id, from any goroutine; notify must not block. The id ""
	// means that any session may have changed, because the connection to the store was lost for a while.
	Join(ctx context.Context, notify func(sessionID string)) error
	// Timeout returns the longest duration of a call to the store.
	Timeout() time.Duration
	// Follow subscribes this node to a session's wake-ups for FollowLease, and then returns the session.
	Follow(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// Poll returns the current state of each followed session, in the same order, and follows these sessions for
	// another FollowLease. If the store cannot reach some of the sessions, only the updates of these sessions have an
	// Err.
	Poll(ctx context.Context, followed []Followed) ([]Update, error)
	// StopReply returns a message. If the message is a live reply, StopReply also tells the reply's node to stop the
	// reply.
	StopReply(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
	// ResumeTurn returns the turn that an earlier BeginTurn began. A node calls it after the response of BeginTurn was
	// lost. The turn must belong to this node and be live. Otherwise ResumeTurn returns ErrMessageNotFound, and the
	// waiter loses its place in the queue.
	ResumeTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
}

// FollowLease is the time for which a node gets a session's wake-ups after Follow or Poll. An idle session is polled
// four times in this time, so one failed poll does not end the wake-ups. The time is short, so wake-ups for a dead node
// stop soon.
const FollowLease = 20 * time.Second

// Followed is a session that a node follows, with the offset that the node has reached in the session's live reply.
type Followed struct {
	Owner     Owner
	SessionID string
	Reply     string // id of the reply; "" for none
	Offset    int    // in the reply's text, in bytes: the node has the text before it
}

// Update describes the current state of a followed session.
type Update struct {
	// Err is the reason why the store could not poll this session; nil if it could. If Err is set, no other field is.
	Err error
	// Gone means that the session no longer exists. Then only At is set: the time of the poll, by the store's clock. If
	// At is the session's expiry time or later, the session has expired; otherwise it was deleted.
	Gone    bool
	At      Time
	Session Session
	// Text is the journalled text of Followed.Reply from Followed.Offset on, if that reply is still live.
	Text []byte
	// Stop is the reason why the live reply should stop; "" if it should continue.
	Stop Stop
	// Summary is the session's summary, without its text.
	Summary Summary
}

// Stop is the reason why a live reply should stop; "" if it should continue.
type Stop string

// The reasons to stop.
const (
	StopCancelled Stop = "cancelled" // by a cancel, or by a send with Interrupt
	StopCleared   Stop = "cleared"   // the history is being cleared
)
