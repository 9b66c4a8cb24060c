package conversation

import (
	"context"
	"time"
)

// FollowLease is for how long a node is poked about a session that it has watched or glanced at.
const FollowLease = 20 * time.Second

// Nodes is what a store offers where several processes, its nodes, share it (design sections 3, 4 and 7). A store that one
// process has to itself has none: there nothing happens that the process has not done.
//
// A node that shows a session to viewers, or writes in it, watches it. It is poked when the session has changed, and may
// be poked for nothing or, rarely, not at all: a poke says nothing but that a glance is due. What has changed, the glance
// says; so a lost poke costs a moment, never text.
//
// Beside what is said in Store, the operations of a store with nodes do this: whatever changes a session (BeginTurn, EndTurn,
// EndOrphans, ClearMessages, DeleteSession, SaveSummary) and Journal poke the nodes that watch it. What wants the live reply to
// stop (BeginTurn with Interrupt, ClearMessages, StopReply) notes that with the turn and pokes its node. BeginTurn names
// the node in the turn and counts it among the node's own; by its Waiter it is the same turn, should it be asked for again
// because the answer was lost. EndOrphans ends the turns of nodes that are gone: it is called every second, by every node.
// Its methods may be called from any goroutine.
type Nodes interface {
	// Join makes this process a node, until the store is closed: it lives for as long as its heartbeat is heard. poked is
	// called with the session's id, from any goroutine and without waiting; "" says that any session may have changed: the
	// connection to the store was lost meanwhile.
	Join(ctx context.Context, poked func(sessionID string)) error
	// Follow has this node poked about a session, and then returns the session as it is. It holds for FollowLease.
	Follow(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// Poll returns what has become of sessions, in the order in which they are named, and watches them for FollowLease more.
	Poll(ctx context.Context, watched []Followed) ([]Update, error)
	// StopReply returns a message. If it is a reply that is live, its node is told that it is to stop.
	StopReply(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
	// ResumeTurn returns the turn that a BeginTurn has begun whose answer was lost: it is this node's, and live. If it has
	// begun none, and in any other state, it returns ErrMessageNotFound, and the waiter has no place in the queue.
	ResumeTurn(ctx context.Context, owner Owner, turn NewTurn) (TurnStart, error)
}

// Followed is a session that a node watches, and how much of its live reply the node has.
type Followed struct {
	Owner     Owner
	SessionID string
	Reply     string // the reply; "" for none
	Offset    int    // bytes of its text
}

// Update is what has become of a session.
type Update struct {
	// Gone says that the session is no more, and At when that was seen, by the store's clock: from Session.ExpiresAt on it has
	// expired. Nothing else is set then.
	Gone    bool
	At      Time
	Session Session
	// Text is what is journalled of the reply that was named, from the offset on, while it is live.
	Text []byte
	// Stop says that the live reply is to stop.
	Stop Stop
	// Summary is the session's, without its text.
	Summary Summary
}

// Stop says why a live reply is to stop.
type Stop string

// The reasons; none is "".
const (
	StopCancelled Stop = "cancelled" // somebody cancels it, or sends with Interrupt
	StopCleared   Stop = "cleared"   // the history is being cleared
)
