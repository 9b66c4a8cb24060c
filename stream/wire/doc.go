// Package wire encodes the stream protocol parley.v1: frames, cursors and close codes. It also encodes events for Vercel's
// AI SDK, as server-sent events and as WebSocket frames. Each token is an event, so this package encodes events by hand,
// without reflection. Other frames are rare, so they are structs that encoding/json encodes.
//
// # Frames
//
// A frame of parley.v1 is one JSON object in a text frame of a WebSocket. The client chooses an id for each request, and
// the response contains this id as replyTo. A server-sent event ([SSE]) contains the frame of the event as data, the type
// of the frame as event name, and the cursor as id. So EventSource can resume with Last-Event-ID.
//
//	client → server   subscribe unsubscribe send cancel ping
//	server → client   welcome subscribed unsubscribed sent cancelled pong error draining
//	events            message.created .delta .completed .cancelled .failed .interrupted
//	                  context.compressed reply.reasoning session.cleared session.deleted session.expired
//
// The server guarantees this order:
//
//   - welcome is the first frame of a connection, and subscribed is the first frame of a subscription.
//   - On a socket, the sent of the send that began a turn comes before all events of the turn.
//   - The messages of a session come in order of creation. The events of a reply are message.created, then deltas without
//     gaps or overlaps, then one terminal event: message.completed, .cancelled, .failed or .interrupted.
//   - session.deleted and session.expired are the last event of a session.
//
// An offset counts bytes of UTF-8 in the text of the reply. The message in a terminal event is authoritative: its content
// replaces the text of the deltas. After a crash, viewers may have seen about 50 ms (one tick of the journal and its write) of
// text that was not stored.
//
// # Cursors
//
// A cursor is a position in a session: the client has seen everything before it. Clients must treat a cursor as opaque. It
// contains a tag of the session, the id of a message, and an offset; "e" in place of the offset means the end of the
// message. A cursor is the whole state of a viewer, so any node can resume from it. The events context.compressed,
// reply.reasoning and session.* are not part of history. They have no cursor, and a client that resumes does not get them again. [ParseCursor]
// refuses a cursor of another session.
//
// # Limits and close codes
//
// [CloseCode] (close.go) lists every reason for which the server closes a socket; add new reasons there. A client's frame
// has at most 1 MiB, the same as the body of a REST request. The server closes a socket after ten invalid frames in a row,
// because a broken client would otherwise repeat them for ever. A valid request that fails is not an invalid frame.
//
// # The AI SDK
//
// [AISDK] encodes the AI SDK's UI message stream as server-sent events. [AISDKFrameEncoder] encodes the same stream as
// frames of WebSocketChatTransport. They encode one reply from its beginning, and omit the events that the AI SDK does not
// know.
package wire
