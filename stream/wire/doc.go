// Package wire encodes the stream protocol parley.v1: frames, cursors and close codes. It also encodes the two dialects of
// Vercel's AI SDK. Events are encoded by hand, without reflection, because each token passes through here. Responses to a
// client's requests are rare, so they are structs that encoding/json encodes.
//
// # Frames
//
// A WebSocket frame is one JSON object in a text frame. The client chooses an id for each request, and the response
// echoes it as replyTo. A server-sent event ([SSE]) has the frame of the same event as data, its type as event name and
// the cursor as id, so that EventSource resumes by Last-Event-ID.
//
//	client → server   subscribe unsubscribe send cancel ping
//	server → client   welcome subscribed unsubscribed sent cancelled pong error draining
//	events            message.created .delta .completed .cancelled .failed .interrupted
//	                  context.compressed session.cleared session.deleted session.expired
//
// The server guarantees this order:
//
//   - welcome is the first frame of a connection, and subscribed the first frame of a subscription.
//   - sent precedes every event of its turn on that socket.
//   - The messages of a session come in their order. A reply has created, deltas with adjoining offsets, one terminal event.
//   - session.deleted and session.expired are the last frame of a session.
//
// An offset counts bytes of UTF-8 in the text of the reply. The message in a terminal event is authoritative and replaces
// the text of the deltas: after a crash, viewers may have seen up to one journal tick (50 ms) more text than was stored.
//
// # Cursors
//
// A cursor is a position in a session: the client has seen everything before it. Clients must treat it as opaque. It
// contains a tag of the session, the id of the message, and the offset or "e" for ended. A cursor is the whole state of a
// viewer, so any node can resume from it. Events that history does not contain (context.compressed, session.*) have no
// cursor of their own and are not replayed. [ParseCursor] refuses a cursor of another session.
//
// # Limits and close codes
//
// [CloseCode] (close.go) lists every reason for which the server closes a socket; add a new one there, with its text. A
// client's frame has at most 1 MiB, the same as the body of a request. Ten invalid frames in a row close the socket,
// because a broken client would otherwise repeat them for ever. A valid request that fails is not an invalid frame.
//
// # The AI SDK
//
// [AISDK] is the UI message stream as server-sent events; [AISDKFrameEncoder] is the same as frames of its WebSocketChatTransport.
// Both show one reply from its beginning. Both omit events without a counterpart.
package wire
