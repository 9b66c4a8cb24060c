// Package wire encodes the stream protocol parley.v1: frames, cursors and close codes. It also encodes the two dialects of
// Vercel's AI SDK. Events are encoded by hand, without reflection, because each token passes through here. The rare
// frames, which answer a client's request, are structs.
//
// # Frames
//
// A WebSocket frame is one JSON object in a text frame. A client's request has an id of its own choice, which the response
// echoes as replyTo. The same events as server-sent events ([SSE]) have the frame as data, its type as event name and the
// cursor as id, so that EventSource resumes by Last-Event-ID.
//
//	client → server   subscribe unsubscribe send cancel ping
//	server → client   welcome subscribed unsubscribed sent cancelled pong error draining
//	events            message.created .delta .completed .cancelled .failed .interrupted
//	                  context.compressed session.cleared session.deleted session.expired
//
// The order that a server keeps:
//
//   - welcome is the first frame of a connection, and subscribed the first frame of a subscription.
//   - sent precedes every event of its turn on that socket.
//   - For each session, messages in their order; for each reply created, deltas with adjoining offsets, one terminal event.
//   - session.deleted and session.expired are the last frame of a session.
//
// An offset counts bytes of UTF-8 in the text of the reply. The message in a terminal event is authoritative and replaces what
// was shown: after a crash, viewers may have seen up to a journal's tick (50 ms) more text than was stored.
//
// # Cursors
//
// A cursor is a position in a session, opaque to clients: everything before it was seen. It holds a tag of the session, the
// message, and the offset or "e" for ended. Because it is the whole state of a viewer, any node can resume it. Events that
// history does not contain (context.compressed, session.*) have no cursor of their own and are not replayed. [ParseCursor]
// refuses a cursor of another session.
//
// # Limits and close codes
//
// [CloseCode] (close.go) lists every reason for which the server closes a socket; add a new one there, with its text. A client's frame has
// at most 1 MiB, which is what the body of a request may have. Ten invalid frames in a row close the socket: a broken client
// would otherwise repeat them for ever. A valid request that fails is not an invalid frame.
//
// # The AI SDK
//
// [AISDK] is the UI message stream as server-sent events; [AISDKFrameEncoder] is the same as frames of its WebSocketChatTransport.
// Both show one reply from its beginning. Events without a counterpart are left out.
package wire
