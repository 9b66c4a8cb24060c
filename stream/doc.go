// Package stream holds live replies. It does not depend on HTTP, WebSocket, Redis or the rules of sessions.
//
// # The idea: a reply is a durable text, a viewer is an offset into that text
//
// Most servers treat a streamed reply as a slow request, which ends when its socket closes. Here the server owns the
// reply. A [Reply] is an append-only text with a state. The state is [Streaming] until the reply ends. The final state is
// [Completed], [Cancelled], [Failed] or [Interrupted]. The only state of a [Viewer] is a [Position]: the id of a message,
// and an offset into its text in bytes of UTF-8. The other properties follow from these rules:
//
//   - Back pressure: a delta is text[offset:]. A fast viewer gets one token per frame; a slow viewer gets fewer and larger
//     frames. No viewer has a queue, so a slow client costs no memory and delays nobody.
//   - Resuming: a client that reconnects sends its position. The server keeps no log of events: a viewer that is far
//     behind reads the stored messages.
//   - Fan-out: a thousand viewers of a reply share one text. Viewers at the same offset share one encoded frame
//     ([Topic.Encode]).
//   - Idempotency: the offset identifies text that the receiver already has. So a sender may repeat text to a viewer, to
//     another node or to the store.
//   - One pipeline: a caller that waits for the whole reply is also a viewer. It skips the events before the end.
//
// If a feature seems to need a queue or a copy for each viewer, derive its data from the position instead.
//
// # The parts
//
//   - [Hub] holds the topics. A [Topic] holds the newest messages of one session, for all viewers. A topic exists while it
//     has a holder: a viewer, the turn that writes the reply, or the component that follows the session.
//   - The tail of a topic is its newest messages in memory, at most 8. The tail stays in memory until 2 s after the end
//     of the newest reply, for slow viewers and for clients that reconnect. Viewers read earlier messages from [History],
//     4 at a time.
//   - [Pump] runs a [Model], appends the model's text to a reply, and decides the final state of the reply.
//   - [Journal] writes the new text of all live replies to the store, one batch per tick. So a node that crashes loses
//     about one tick of text, and the store gets one write per tick instead of one per token. If a tick has more than 1
//     MiB of new text, further batches follow.
//
// # What a viewer is shown
//
// A viewer is shown the messages of the topic in order of creation. A reply is shown as [Created], then as deltas
// without gaps or overlaps, then as one [Ended]. A delta never splits a character and has at most 16 KiB ([MaxDelta]). A
// viewer that starts at a position is shown everything after that position, once.
//
//	Created ──> Delta … ──> Ended          a reply
//	Created                                any other message
//	Cleared                                the history was removed; later messages follow
//	ContextSummarised                      only the newest one, and only to viewers that are subscribed: not part of history
//	Deleted | Expired                      the session is gone: the last event of a topic
//
// If the session is cleared or removed during a reply, viewers are shown Cleared, Deleted or Expired instead of Ended.
// The reply then ends without an [Ending.Message]. Callers store an ending before they call [Reply.End], so no viewer
// sees an ending that a crash could undo.
//
// # Locks and wake-ups
//
// The bytes of a text never change, so viewers encode and send text without the lock of the hub, the topic or the reply.
// [Viewer.Next] parks a viewer that has been shown everything. The writer wakes only parked viewers, so a viewer that
// is stuck in a slow write costs the writer nothing. A wake-up carries no data: the viewer derives the next event from
// its position. Lock order: a hub, then a topic, then a reply.
//
// # Limits
//
// A model server may send anything, so everything that it sends has a limit:
//
//	text of a reply or a summary   [Request.MaxBytes]: Pump cuts the text off and closes the request
//	signs of life without text     an hour, then the reply fails with provider_timeout
//	silence                        [Timeouts]
//	a line of a response           1 MiB; the response then fails (package openai, also for the rows below)
//	a response                     64 MiB, and 512 bytes more for each byte of its text; reasoning counts, and is not kept
//	an error response              64 KiB are read
//	a list of models               4 MiB
//	embeddings                     128 KiB for each text, and 4,096 numbers for each vector
//
// The text of a reply is in memory once: it grows in chunks, and viewers, the journal and the final message share the
// chunks ([Reply], [Document]). A batch of the journal has about 1 MiB at most. A frame with a large text is encoded while
// it is written ([Frame]).
//
// # Timeouts
//
// By default, a model may be silent for 120 s at the beginning, because a local server may have to load the model or may
// queue the request. After that, a model may be silent for 60 s at a time ([Timeouts]). After a longer silence, the reply
// fails with provider_timeout and keeps its text.
//
// Start reading in stream.go (positions and events), then reply.go, topic.go, viewer.go and pump.go.
package stream
