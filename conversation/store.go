package conversation

import (
	"context"
	"time"
)

// Store keeps sessions and messages. Each method is one atomic operation over all nodes: it happens completely or not at all,
// and what it returned without an error is durable. If ctx carries the admission of a request (auth.Admission), the operation
// admits the request first.
//
// Methods may be called from any goroutine. Another owner's session, an expired one and an unknown one are all
// ErrSessionNotFound. Any error that this package does not define means that the store failed; it wraps ErrUnavailable where a
// later try may succeed. The store's own clock stamps ids and times, never below the session's last.
//
// Usage is counted in the same operation as the event: in the hour of the event, except that the time for which a session has
// lasted counts in the hour of its creation. [UsageOfSession], [UsageOfTurnStart], [UsageOfTurnEnd] and [UsageOfSummary] say
// what each operation counts. Usage buckets outlive their sessions, for usage.RetentionHours hours.
type Store interface {
	SessionStore
	TurnStore
	ContextStore
	UsageStore
}

// Nodes is what a store adds where several processes, its nodes, share it. A store that one process has to itself has no Nodes:
// there this process does everything that happens.
//
// A node follows a session that it shows to viewers or writes in. The store notifies the node when the session has changed;
// it may notify for nothing and, rarely, not at all. A wake-up only says that the node should poll. Poll says what has changed,
// so a lost wake-up costs a moment and never text.
//
// In a store with nodes, the operations of Store do this besides. Whatever changes a session (BeginTurn, EndTurn, EndOrphans,
// ClearMessages, DeleteSession, SaveSummary, Journal) notifies the nodes that follow it. What wants a live reply to stop
// (BeginTurn with Interrupt, ClearMessages, StopReply) notes that with the turn and notifies the turn's node. BeginTurn records
// its node with the turn and recognises its Waiter, so that asking again after a lost response finds the same turn. Every node
// calls EndOrphans every second; it ends the turns of nodes that are gone.
//
// Methods may be called from any goroutine.
type Nodes interface {
	// Join makes this process a node until the store is closed. The node lives while its heartbeat is heard. notify is called
	// with a session's id from any goroutine and must not block; "" means that any session may have changed, because the
	// connection to the store was lost meanwhile.
	Join(ctx context.Context, notify func(sessionID string)) error
	// Follow subscribes this node to a session's wake-ups for FollowLease, and then returns the session.
	Follow(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// Poll returns what has become of sessions, in their order, and follows them for another FollowLease.
	Poll(ctx context.Context, followed []Followed) ([]Update, error)
	// StopReply returns a message. If it is a live reply, its node is notified that it should stop.
	StopReply(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
	// ResumeTurn returns the turn that an earlier BeginTurn began if its response was lost: the turn belongs to this node and
	// is live. In any other case it returns ErrMessageNotFound, and the waiter has no place in the queue.
	ResumeTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
}

// FollowLease is how long a node gets wake-ups for a session after Follow or Poll: four polls of an idle session, so that a
// lost poll does not end them, and short enough that a node that is gone costs little.
const FollowLease = 20 * time.Second

// Followed is a session that a node follows, and how much of its live reply the node has.
type Followed struct {
	Owner     Owner
	SessionID string
	Reply     string // id of the reply; "" for none
	Offset    int    // bytes of its text that the node has
}

// Update is what has become of a followed session.
type Update struct {
	// Gone says that the session does not exist any more, and At when that was seen, by the store's clock: from
	// Session.ExpiresAt on it has expired, before that it was deleted. Nothing else is set then.
	Gone    bool
	At      Time
	Session Session
	// Text is the journalled text of Followed.Reply from Offset on, while that reply is live.
	Text []byte
	// Stop says that the live reply should stop.
	Stop Stop
	// Summary is the session's, without its text.
	Summary Summary
}

// Stop says why a live reply should stop; "" is not at all.
type Stop string

// The reasons to stop.
const (
	StopCancelled Stop = "cancelled" // somebody cancels it, or sends with Interrupt
	StopCleared   Stop = "cleared"   // the history is being cleared
)
