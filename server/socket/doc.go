// Package socket runs Parley's WebSocket connections: GET /v1/stream, in the dialects parley.v1 and ai-sdk.v7. It knows no
// routes and no HTTP framework. Package server authenticates a handshake and passes it to [Registry.Upgrade]. Sockets use the
// conversation service and the keys through the small interfaces [Conversation] and [Keys].
//
// # A connection
//
// One goroutine of a connection, the reader, exists all the time: a new one for each message, so that its stack stays small. A
// second one, the writer, exists only while there is something to write. So an idle socket costs one goroutine and about 12 KiB.
// The writer alternates between the outbox (responses to requests) and the subscriptions that are ready, one event each. It
// flushes the outbox before each event. So `sent` precedes every frame of the turn that the send began, and `subscribed` is the
// first frame of its subscription.
//
// There is no queue of events. A viewer has an offset into a reply's text. When the writer serves the viewer, it sends the
// text after that offset as one delta. A client that keeps up gets one token per frame; a slow client gets fewer, larger
// frames. A slow client costs no additional memory and delays no other client.
//
// Back pressure applies to requests: when maxOutbox (64) responses wait, the reader stops reading. A queued send never blocks
// the reader. A cancel blocks the reader only while maxCancels (16) cancels of the socket are running. A socket may have
// maxSubscriptions (1,000) subscriptions. The frames on all sockets of a key count towards one limit (auth.Frames). After a
// frame above the limit, the reader stops for refusalPause.
//
// # Dialects
//
// A dialect handles the client's frames and writes events. parley.v1 multiplexes sessions. It has strict JSON, at most one
// subscription per session, and errors with codes. ai-sdk.v7 is the protocol of the AI SDK's WebSocketChatTransport. Each
// request shows one reply from its beginning. The server ignores unknown members, and sends no frame that the AI SDK does not
// know.
//
// # Timings
//
// Most are constants in connection.go; messageTimeout is in reader.go. Package transport ends a connection if a write makes no
// progress for 30 s.
//
//   - pingInterval, 25 s: below the idle timeouts of proxies. Two pings without a pong close the socket with 4408.
//   - messageTimeout, 30 s: a message must be complete within this time after it has begun. Otherwise the socket closes with
//     4408.
//   - maxMessageBytes, 4 MiB: a message may take at most so many bytes with the headers of its fragments. Otherwise,
//     the connection is cut.
//   - refusalPause, 0.2 s: after a frame above the limit of frames, the reader does not read for this time.
//   - closeTimeout, 2 s: the time that a client has to answer a close frame.
//   - revocationInterval, 0.4 s: the interval of key checks. A socket is closed (4401) within a second after its key was
//     revoked. Its frames are refused at once.
//   - storeTimeout, 10 s: the time that a request on a socket waits for the store. [HistoryRetry], 1 s: the delay before a
//     viewer reads history again while the store is unreachable. The socket stays open meanwhile.
//   - resumeGrace, 0.25 s: the delay of an abort of a resume. If another resume follows within that time, the page resumed
//     again, and its user did not stop the reply.
//
// # Ends
//
// To add a reason to close a socket, add a wire.CloseCode with its text (stream/wire/close.go) and its cause (cause.go).
// connection.close sends the code, and records the cause for auditors.
//
// The server closes with 1003 for a binary frame, 1007 for invalid UTF-8, 1008 after ten invalid frames in a row (a valid
// request that fails does not count), 1009 for a frame over 1 MiB, 1012 when draining, 4401 for a revoked or expired key, 4408
// without a heartbeat or with an unfinished message, and 4429 with too many connections. When a socket ends, its queued sends
// are withdrawn. Its live replies go on, because a reply belongs to a session and not to a connection.
//
// [Registry.Drain] sends `draining` and closes each socket as soon as no session that the socket views has a live reply here.
// It then waits for the goroutines of all sockets.
package socket
