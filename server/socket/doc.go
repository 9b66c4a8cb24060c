// Package socket runs Parley's WebSocket connections: GET /v1/stream, in the dialects parley.v1 and ai-sdk.v7. It knows no
// routes and no HTTP framework. Package server authenticates a handshake and passes it to [Registry.Upgrade]. Sockets use
// the engine and the keys through the small interfaces [Conversation] and [Keys].
//
// # A connection
//
// A connection has one goroutine, which reads. The writer is a second one that exists only while there is something to
// write, so an idle socket costs one goroutine and about 15 KiB. The writer alternates between the outbox (responses to
// requests) and the subscriptions that are ready, one event each. It flushes the outbox before each event; that is why
// `sent` precedes every frame of its turn and `subscribed` is the first frame of its subscription.
//
// There is no queue of events. A viewer has an offset into a reply's text, and a delta is the text after that offset when
// the frame can be written. A client that keeps up gets a token a frame; a slow one gets fewer, larger frames. A slow client
// costs no additional memory and delays no other client.
//
// Back pressure applies to requests: when maxOutbox (64) responses wait, the reader stops reading. A queued send and a cancel
// never block the reader; a socket may run maxCancels (16) cancels and have maxSubscriptions (1,000) subscriptions.
//
// # Dialects
//
// A dialect handles the client's frames and writes events. parley.v1 multiplexes sessions: strict JSON, one subscription a
// session, errors with codes. ai-sdk.v7 is the protocol of the AI SDK's WebSocketChatTransport: each request shows one reply
// from its beginning, unknown members are ignored, and the server sends no frame that the AI SDK does not know.
//
// # Timings
//
// Most are constants in connection.go. [WriteTimeout] is in deadline.go, which enforces it on each write.
//
//   - pingInterval, 25 s: below the idle timeouts of proxies. Two pings without a pong close the socket with 4408.
//   - [WriteTimeout], 30 s: a write that makes no progress for that time ends the connection.
//   - closeTimeout, 2 s: the time that a client has to answer a close frame.
//   - revocationInterval, 0.4 s: a socket is closed within a second of its key's revocation (4401). Frames are refused at once.
//   - storeTimeout, 10 s: the time that a request on a socket waits for the store. [HistoryRetry], 1 s: the delay before a
//     viewer reads history again while the store is unreachable. The socket stays open meanwhile.
//   - resumeGrace, 0.25 s: distinguishes an AI SDK user's stop from a second resume.
//
// # Ends
//
// A new reason to close is a wire.CloseCode with its text (stream/wire/close.go); connection.close sends it.
//
// The server closes with 1003 for a binary frame, 1007 for invalid UTF-8, 1008 after ten invalid frames in a row (a valid
// request that fails does not count), 1009 for a frame over 1 MiB, 1012 when draining, 4401 for a revoked or expired key, 4408
// without a heartbeat and 4429 with too many connections. When a socket ends, its queued sends are withdrawn; its live
// replies go on, because a reply belongs to its session and not to a connection.
//
// [Registry.Drain] sends `draining`, closes each socket once no session that it views has a live reply here, and waits for
// every goroutine of the package.
package socket
