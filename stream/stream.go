package stream

// State is the state of a reply. It is [Streaming] until the reply ends. Each of the other four states is final.
type State string

// The states of a reply. A message from a user or the system never streams: it is Completed from its creation.
const (
	Streaming   State = "streaming"
	Completed   State = "completed"
	Cancelled   State = "cancelled"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// Position is a place in a topic: the viewer has seen everything before it. Message ids sort by creation, so a position
// stays valid after its message has been removed.
type Position struct {
	// ID is the id of the message that contains the position. "" means that the position is before the first message.
	ID string
	// Offset is the number of bytes of the reply's text that the viewer has seen. 0 means that it has seen only Created.
	Offset int
	// Ended means that the viewer has seen the whole message. Offset has no meaning then.
	Ended bool
}

// After returns the position just after the message with that id.
func After(id string) Position { return Position{ID: id, Ended: true} }

// Before returns the position just before the message with that id, after all earlier messages. Two ids of a session always
// differ before their last character. So id without its last character sorts between the previous id and id.
func Before(id string) Position { return After(id[:len(id)-1]) }

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	// Created announces a message. In this event, a reply has no text; any other message is complete.
	Created EventKind = iota + 1
	// Delta is text of a reply. It begins where the previous delta ended.
	Delta
	// Ended is the end of a reply. It is the reply's last event and occurs once.
	Ended
	// Cleared means that the history was removed. A live reply that was removed has no Ended.
	Cleared
	// Deleted and Expired mean that the session is gone. Each is the last event of its topic.
	Deleted
	Expired
	// ContextSummarised means that a summary has replaced messages in the prompt, or that messages were dropped from the
	// prompt. It is not part of history. Next returns only the newest ContextSummarised since its last call. (On the wire,
	// the event is called context.compressed.)
	ContextSummarised
	// Reasoning means that the model reasons, and that the reply has no text yet. It is not part of history. A viewer gets at
	// most one Reasoning a second. (On the wire, the event is called reply.reasoning.)
	Reasoning
)

// SummaryStats are the figures of a ContextSummarised event.
type SummaryStats struct {
	Summarised, Dropped int // numbers of messages
	// TokensBefore is the number of prompt tokens that the replaced or dropped content took. TokensAfter is the number of
	// prompt tokens of the summary; 0 for dropped messages.
	TokensBefore, TokensAfter int
}

// MaxDelta is the maximum size of a delta in bytes. It limits the size of a frame for a viewer that is far behind.
const MaxDelta = 16 << 10

// Event is one event of a topic. Delta points into the text of the reply, which never changes, so the caller may keep
// the slice.
type Event struct {
	Kind EventKind
	// Entry is the message; nil for Cleared, Deleted, Expired and ContextSummarised.
	Entry *Entry
	// Delta is a piece of the reply's text, and Offset is the offset of its first byte. Both are set only if Kind is Delta.
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
	// Created is the message as JSON for the Created event. In this JSON, a reply is streaming and has no text; any other
	// message is complete.
	Created []byte
	// Reply is the text and state of a reply, live or ended; nil if the message is not a reply.
	Reply *Reply

	frames frames
}
