// Package stream holds live replies. It knows no HTTP, no WebSocket, no Redis and no rules of sessions.
//
// # The idea: a reply is a durable text, a viewer is an offset into it
//
// Most servers treat a streamed reply as a slow request: it ends with its socket. Here the server owns the reply. A [Reply] is an
// append-only text with a state: [Streaming], then for good one of [Completed], [Cancelled], [Failed] and [Interrupted]. A
// [Viewer] holds only a [Position]: a message, and an offset into its text in bytes of UTF-8. Everything else follows:
//
//   - Back pressure: a delta is text[offset:]. A viewer that keeps up gets a token a frame, a slow one gets fewer and larger
//     frames. There is no queue for each viewer, so a slow client costs no memory and delays nobody.
//   - Resuming: the viewer names its position. No log of events is kept: the history is the log, and a viewer that is far
//     behind reads history.
//   - Fan-out: one reply with a thousand viewers is one text, and a frame is encoded once for all viewers at the same
//     offset ([Topic.Encode]).
//   - Idempotency: the offset identifies a repeated or overlapping piece of text. So it is safe to send text again to a
//     viewer, to another node or to the store.
//   - One pipeline: a caller that waits for the whole reply is also a viewer. It skips the events before the ending.
//
// A feature that seems to need a queue or a copy for each viewer has a simpler design: derive it from the position.
//
// # The parts
//
//   - [Hub] holds the topics. A [Topic] is one session as its viewers see it. It exists while it has a holder: a viewer, or the
//     turn that writes its reply.
//   - The tail of a topic is its newest messages in memory, at most 8. A reply stays there for 10 s after its end, for viewers
//     that are a little behind and for reconnects. Viewers read earlier messages from [History], 4 at a time.
//   - [Pump] runs a [Model], writes its text to a reply, and decides the state in which the reply ends.
//   - [Journal] writes the new text of all live replies to the store, one batch a tick. So a node that crashes loses at most a
//     tick of text, and the store gets one write a tick instead of one a token.
//
// # What a viewer is shown
//
// A viewer is shown the messages of the topic in their order. A reply is shown as [Created], then deltas with adjoining
// offsets, then one [Ended]. A delta never splits a character and has at most 16 KiB ([MaxDelta]). A viewer that starts
// at a position is shown everything after it, once.
//
//	Created ──> Delta … ──> Ended          a reply
//	Created                                any other message
//	Cleared                                the history was removed; later messages follow
//	ContextSummarised                      only the newest one, only to present viewers: not part of history
//	Deleted | Expired                      the session is gone: the last event of a topic
//
// Cleared, Deleted and Expired take the place of a live reply's Ended: [Ending.Message] is nil then. A reply ends
// ([Reply.End]) only after its ending is durable, so no viewer ever sees an ending that a crash takes back.
//
// # Locks and wake-ups
//
// The bytes of a text never change, so readers encode and write outside every lock. A viewer that has been shown
// everything is parked. The writer wakes only parked viewers, so a viewer that is stuck in a slow write costs the writer
// nothing. A wake-up carries no data: the viewer derives the next event from its position. Lock order: a hub, then a
// topic, then a reply.
//
// # Timeouts
//
// By default, a model may be silent for 120 s before the first byte, because a local model may first load or have a queue.
// Between two bytes it may be silent for 60 s ([Timeouts]). After that the reply fails with provider_timeout and keeps its
// text.
//
// Start reading in stream.go (positions and events), then reply.go, topic.go, viewer.go and pump.go.
package stream
