package stream

// State is the state of a reply: [Streaming] until it ends, then one of the others, for good.
type State string

// The states of a reply. A message that never streamed, from a user or the system, is Completed from the start.
const (
	Streaming   State = "streaming"
	Completed   State = "completed"
	Cancelled   State = "cancelled"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// Position says how far a viewer has read into a topic. Ids of messages sort by creation, so a position can be compared
// with any message, even one that no longer exists.
type Position struct {
	// ID is the message that contains the position; "" is before the first message.
	ID string
	// Offset is the number of bytes of the reply's text that were seen. At 0, only Created was seen.
	Offset int
	// Ended means that the viewer has seen the whole message. Offset has no meaning then.
	Ended bool
}

// After returns the position after the message id.
func After(id string) Position { return Position{ID: id, Ended: true} }

// Before returns the position just before the message id, after all earlier messages.
func Before(id string) Position { return After(id[:len(id)-1]) } // a prefix sorts before the whole, and after all smaller ids

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	// Created announces a message. A reply is announced as it began, any other message is complete.
	Created EventKind = iota + 1
	// Delta is text of a reply. It follows the text of the previous delta.
	Delta
	// Ended is the end of a reply. It is the reply's last event and occurs once.
	Ended
	// Cleared means that the history was removed. If that contained a live reply, the reply has no Ended.
	Cleared
	// Deleted and Expired mean that the session is gone. They are the last event of a topic.
	Deleted
	Expired
	// ContextSummarised means that messages were replaced by a summary, or dropped. It is not part of history: a viewer
	// is shown only the newest one since its last call of Next. (On the wire it is called context.compressed.)
	ContextSummarised
)

// SummaryStats are the figures of a ContextSummarised event.
type SummaryStats struct {
	Summarised, Dropped       int // numbers of messages
	TokensBefore, TokensAfter int // of these messages in a prompt, before and after
}

// MaxDelta is the maximum size of a delta in bytes. It bounds the frame for a viewer that is far behind.
const MaxDelta = 16 << 10

// Event is the next thing that a viewer is shown. Its slices point into the shared text and stay valid as long as the
// caller holds them.
type Event struct {
	Kind EventKind
	// Entry is the message; nil for Cleared, Deleted, Expired and ContextSummarised.
	Entry *Entry
	// Offset and Delta are set if Kind is Delta: the text of the reply from byte Offset on.
	Offset int
	Delta  []byte
	// Ending is set if Kind is Ended.
	Ending *Ending
	// Summary is set if Kind is ContextSummarised.
	Summary *SummaryStats
	// After is the viewer's position after this event.
	After Position
}

// Entry is one message of a topic, shared by all viewers.
type Entry struct {
	ID string
	// Created is the message as JSON for the Created event: a reply as it began, any other message complete.
	Created []byte
	// Reply is the text of this message if it is a reply, live or ended; nil for any other message.
	Reply *Reply

	frames frames
}
