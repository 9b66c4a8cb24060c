// Package client is the Go client of Parley and its stream protocol, parley.v1.
//
// # Guarantees
//
// A caller does not notice a lost connection. The iteration opens another socket, subscribes from the last cursor, and
// skips text that the caller has got before. So the iteration yields each piece of text once, and without gaps. The message
// of an [End] event is authoritative: its content replaces the text of the deltas.
//
// A message takes effect once. If the server does not confirm a send, the client repeats the send with the same
// idempotency key.
//
// # Sockets
//
// An iteration reads its socket in the caller's goroutine. The client has no goroutine and no queue. A slow caller delays
// only its own socket, and gets fewer and larger deltas. A socket belongs to one iteration at a time. After the iteration,
// the socket stays open for 20 s for another iteration. A client keeps at most 16 idle sockets.
//
// # Reconnecting
//
// The delay before an attempt is random, so that the clients of a restarted server do not all return at the same time. The
// upper bound of the delay is 0.5 s, then 1 s, 2 s … up to 15 s. A server that drains chooses the delay. Before an iteration
// has begun, the client gives up after five failed attempts. After that, it retries until the context ends. The client
// closes a socket after 60 s without any frame or ping: the server pings every 25 s.
//
// Start reading in client.go (what callers use), then viewing.go (one iteration), track.go (which frames are new) and
// conn.go (one socket).
package client
