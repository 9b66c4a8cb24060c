// Package stream holds live replies: a reply is a durable, append-only text with a state, and a viewer is an offset
// into it (design section 1). Everything else follows from that one structure.
//
//   - [Reply] is the text and its state. One writer appends; any number of viewers read.
//   - [Topic] is a session as its viewers see it: the messages in their order, the newest of them in memory.
//   - [Viewer] is a [Position] in a topic. It holds no queue and no copy: what it is given next is computed from
//     where it stands, so a slow viewer gets fewer, larger deltas and costs nobody anything.
//   - [Pump] runs a [Model] into a reply and decides how it ended, exactly once.
//   - [Journal] carries the new text of all live replies to a store, one batch a tick.
//
// The package knows no HTTP, no WebSocket, no Redis and no rules of sessions. What it needs from a room above it
// (reading history, writing the journal) it asks for through the small interfaces declared here.
package stream

// State is the state of a reply: [Streaming] until it ends, then exactly one of the others, for good.
type State string

// The states of a reply. A message that never streamed (a user's, a system's) is Completed from the start.
const (
	Streaming   State = "streaming"
	Completed   State = "completed"
	Cancelled   State = "cancelled"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// Position is how far a viewer has read into a topic: everything before it was seen. Ids of messages sort by
// creation, so a position compares with any message, present or gone.
type Position struct {
	// ID is the message the position stands at; "" stands before the first.
	ID string
	// Offset counts the bytes of the reply's text that were seen. At 0 its beginning was announced, no more.
	Offset int
	// Ended says that the message was seen whole, its ending included; Offset means nothing then.
	Ended bool
}

// After returns the position that follows the whole of the message id.
func After(id string) Position { return Position{ID: id, Ended: true} }

// Before returns the position just before the message id, after all that precede it.
func Before(id string) Position { return After(id[:len(id)-1]) } // a string sorts before those it begins

// EventKind tells what a viewer is shown next.
type EventKind uint8

// What a viewer can be shown.
const (
	// Created announces a message: whole if it has no reply, as it began otherwise.
	Created EventKind = iota + 1
	// Delta is a piece of a reply's text that adjoins the one before it.
	Delta
	// Ended is the end of a reply: its last event, once.
	Ended
	// Cleared says that the session's history was removed; what was live in it has no other ending.
	Cleared
	// Deleted and Expired say that the session is gone: the last event of the topic.
	Deleted
	Expired
	// ContextSummarised says that messages were folded into a summary, or left out. It is no part of history: a viewer is shown the
	// newest one since its last look, or none.
	ContextSummarised
)

// SummaryStats is what a ContextSummarised event tells of.
type SummaryStats struct {
	Summarised, Dropped       int // messages
	TokensBefore, TokensAfter int // what they took in a prompt, and now take
}

// MaxDelta is the largest delta a viewer is given, in bytes. No delta splits a character (design section 4).
const MaxDelta = 16 << 10

// Event is what a viewer is shown next, and where it stands afterwards. It is a value: it holds slices of the one
// text, never copies, and stays valid for as long as anybody holds it.
type Event struct {
	Kind EventKind
	// Entry is the message concerned; nil for Cleared, Deleted, Expired and ContextSummarised.
	Entry *Entry
	// Offset and Delta are set for Delta: Delta is the reply's text from byte Offset on.
	Offset int
	Delta  []byte
	// Ending is set for Ended.
	Ending *Ending
	// Summary is set for ContextSummarised.
	Summary *SummaryStats
	// After is the viewer's position once it has been shown the event.
	After Position
}

// Entry is one message of a topic, shared by all its viewers.
type Entry struct {
	ID string
	// Created is the message as JSON, as the Created event shows it: whole, or for a reply as it began.
	Created []byte
	// Reply is the live or ended reply that this message is; nil for a message that never streamed.
	Reply *Reply

	frames frames
}
