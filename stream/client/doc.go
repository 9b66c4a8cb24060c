// Package client is the Go client of Parley and its stream protocol, parley.v1.
//
// # Guarantees
//
// A viewer is an offset into a text, so a lost connection is not an error to the caller. The iteration dials again,
// subscribes from its last cursor, and skips text that it has already yielded. So it yields every piece of text once and
// without a gap. The text of an [End] event is authoritative and replaces the text of the deltas.
//
// A message takes effect once: the client repeats a send that was not confirmed, with the same idempotency key.
//
// # Sockets
//
// An iteration reads its socket in the caller's goroutine. The client has no goroutine and no queue: a slow caller holds back only
// its own socket, and gets fewer and larger deltas. A socket belongs to one iteration at a time. Afterwards it stays open
// for 20 s for the next iteration, as connections of net/http do; at most 16 are idle at a time.
//
// # Reconnecting
//
// The delay before an attempt is random. Its upper bound is 0.5 s, then 1 s, 2 s … up to 15 s. So the clients of a
// restarted server do not return all at once. A server that drains chooses the delay. The client gives up after five attempts that never
// succeeded. Once an iteration has begun, the client retries until its context ends. A socket is closed after 60 s
// without any frame or ping: the server pings every 25 s.
//
// Start reading in client.go (what callers use), then viewing.go (one iteration), track.go (which frames are new) and
// conn.go (one socket).
package client
