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
//   - Resuming means to name a position. No log of events is kept: the history is the log, and a viewer that is far behind
//     reads history.
//   - Fan-out: one reply with a thousand viewers is one text, and a frame is encoded once for all viewers at the same
//     offset ([Topic.Encode]).
//   - Idempotency: a repeated or overlapping piece of text is recognised by its offset. So it may safely be sent again to a
//     viewer, to another node or to the store.
//   - A caller that waits for the whole reply is a viewer that skips to the ending. There is one pipeline.
//
// If a feature seems to need a queue or a copy for each viewer, look again.
//
// # The parts
//
//   - [Hub] holds the topics. A [Topic] is one session as its viewers see it. It exists while somebody holds it: its viewers, and
//     the turn that writes its reply.
//   - The tail of a topic is its newest messages in memory, at most 8. A reply stays there for 10 s after its end, for viewers
//     that are a little behind and for reconnects. What lies before the tail is read from [History], 4 messages at a time.
//   - [Pump] runs a [Model] into a reply and decides how it ended, in exactly one state, whatever the model does.
//   - [Journal] writes the new text of all live replies to the store, one batch a tick. A node that crashes so loses at most a
//     tick of text, and the store gets a write a tick instead of one a token.
//
// # What a viewer is shown
//
// The messages of the topic in their order, and for each reply [Created], then deltas with adjoining offsets, then one
// [Ended]. A delta never splits a character and has at most 16 KiB ([MaxDelta]). A viewer that starts at a position is
// shown everything after it, once.
//
//	Created ──> Delta … ──> Ended          a reply
//	Created                                any other message
//	Cleared                                the history was removed: the view goes on behind it
//	ContextSummarised                      only the newest one, only to those who view now: not part of history
//	Deleted | Expired                      the session is gone: the last event of a topic
//
// Cleared, Deleted and Expired take the place of a live reply's Ended: [Ending.Message] is nil then. A reply ends
// ([Reply.End]) only after its ending is durable, so no viewer ever sees an ending that a crash takes back.
//
// # Locks and wake-ups
//
// The bytes of a text never change, so readers encode and write outside every lock. A viewer that has been shown everything is
// parked. The writer wakes only parked viewers: one that is stuck in a slow write costs it nothing. A wake-up carries no
// data; the viewer computes from its position what comes next. Lock order: a hub, then a topic, then a reply.
//
// # Timeouts
//
// A model may be silent for 120 s before the first byte (a local model may first load, or work off a queue) and 60 s between
// two bytes ([Timeouts]; both can be configured). After that the reply fails with provider_timeout and keeps its text.
//
// Start reading in stream.go (positions and events), then reply.go, topic.go, viewer.go and pump.go.
package stream
