// Package socket runs Parley's WebSocket connections: GET /v1/stream, in the dialects parley.v1 and ai-sdk.v7. It knows no
// routes and no HTTP framework. Package server authenticates a handshake and passes it to [Registry.Upgrade]; what sockets
// need of the engine and of keys are the small interfaces [Conversation] and [Keys].
//
// # A connection
//
// A connection has one goroutine, which reads. The writer is a second one that exists only while there is something to
// write, so an idle socket costs one goroutine and about 15 KiB. The writer alternates between the outbox (responses to
// requests) and the subscriptions that are ready, one event each. It flushes the outbox before each event; that is why
// `sent` precedes every frame of its turn and `subscribed` is the first frame of its subscription.
//
// There is no queue of events. A viewer is an offset into a reply's text, and a delta is whatever lies after that offset
// when the frame can be written. A client that keeps up gets a token a frame; a slow one gets fewer, larger frames. It
// costs no memory and delays nobody.
//
// Back pressure works on requests: when maxOutbox (64) responses wait, the reader stops reading. A queued send and a cancel
// never block the reader; a socket may run maxCancels (16) cancels and have maxSubscriptions (1,000) subscriptions.
//
// # Dialects
//
// A dialect handles the client's frames and writes events. parley.v1 multiplexes sessions: strict JSON, one subscription a
// session, errors with codes. ai-sdk.v7 is what the AI SDK's WebSocketChatTransport speaks: one request is one reply from
// its beginning, unknown members are ignored, and there is no frame that the AI SDK does not know.
//
// # Timings
//
// Most are constants in connection.go. [WriteTimeout] is in deadline.go, which enforces it on each write.
//
//   - pingInterval, 25 s: below the idle timeouts of proxies. Two pings without an answer close the socket with 4408.
//   - [WriteTimeout], 30 s: a write that makes no progress for so long drops the connection.
//   - closeTimeout, 2 s: how long a client has to answer a close frame.
//   - revocationInterval, 0.4 s: a socket ends within a second of its key (4401). Frames are refused at once.
//   - storeTimeout, 10 s: how long a request on a socket waits for the store. [HistoryRetry], 1 s: how often a viewer
//     tries again to read history while the store is unreachable. The socket stays open meanwhile.
//   - resumeGrace, 0.25 s: tells an AI SDK user's stop from a reconnect.
//
// # Ends
//
// A new reason to close is a wire.CloseCode with its text (stream/wire/close.go); connection.close sends it.
//
// The server closes with 1003 for a binary frame, 1007 for invalid UTF-8, 1008 after ten invalid frames in a row (a valid
// request that fails is not one), 1009 for a frame over 1 MiB, 1012 when draining, 4401 for a revoked or expired key, 4408
// without a heartbeat and 4429 with too many connections. When a socket ends, its queued sends are withdrawn; its live
// replies go on, because a reply belongs to its session and not to a connection.
//
// [Registry.Drain] sends `draining`, closes each socket once no session that it views has a live reply here, and waits for
// every goroutine of the package.
package socket
