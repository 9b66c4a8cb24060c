// Package redis is the store for any number of nodes: accounts, keys, limits, sessions and live replies on Redis 7.0 and newer,
// or Valkey. It works with a single server, with Sentinels, and with a Cluster ([Open] explains the URLs).
//
// # One operation, one script
//
// Each operation that changes something is one Lua script, which Redis runs atomically. NAME.go calls lua/NAME.lua, whose head
// documents
// KEYS, ARGV and the result. Scripts share the definitions in lua/lib. Limits, timeouts and names of keys are written in Go only:
// Lua gets them in a generated prelude (compose.go, constants.go, schema.go). A script returns a refusal as a value. So an error
// from Redis is always a fault.
//
// Everything of one account and mode has one hash tag, so it is in one slot of a Cluster (schema.go lists all keys). That has two
// effects. The admission of a request (its key works, its rate limits allow it) runs in the same script as the operation, in the
// same round trip. And a script cannot even name a key of another account. Outside of the tags are the pointers from the hash of
// a secret to its key, the key that seals tickets, and each node's heartbeat, live turns and inbox. Their changes are not atomic
// with the scripts, but a crash in between does no harm. A pointer only saves a round trip. The set of live turns may name turns
// that are not live. In a Cluster it may also lack a turn if the node died in between; a poll or a waiter finds such a turn.
//
// Most operations take one round trip, and a test counts the round trips. A send takes two, one before the model is called. The
// text of all live replies takes one round trip a tick, not one a token.
//
// # Lost replies
//
// If a connection breaks, a script may or may not have run. A script that is marked idempotent is sent again, once, unless it
// counts a request. These are the reads, and the scripts whose repeat recognises its own work: BeginTurn by its waiter, EndTurn
// by the fencing token. Heartbeats, leases and journal writes are idempotent by nature. The others return
// conversation.ErrUnavailable, and the caller decides. ResumeTurn finds the turn of a BeginTurn whose reply was lost, or makes
// sure that the turn never begins. CreateSession is safe to repeat with an idempotency key. A repeated DeleteSession or
// SaveSummary changes nothing.
//
// A call takes 1.8 s at most, so that a request gets its 503 within 2 s if Redis cannot be reached.
//
// # Turns and fencing
//
// Each turn of a session has a higher fencing token than the one before. Ending a turn needs the current token, and the token is
// part of the journal's key. If a node was suspended and others have ended its turn, it cannot end the turn again, and
// writes its text to a journal that nobody reads. Its EndTurn returns the stored reply. The reservation of a turn is stored
// beside the session and outlives it, so usage is settled once even if the session was deleted or has expired.
//
// # Journal
//
// Each tick, a node writes the new text of all its live replies in one pipeline, each by SETRANGE at its offset. The offset makes
// a repeat harmless, and the command costs Redis a third of a script. But SETRANGE would create an expired key again, without
// expiry. So the first write, and one about every five minutes, goes through a script that checks the key. And the key of an
// ended turn stays, empty, for five minutes.
//
// # Nodes
//
// A process gets a new name each time it starts. It sends a heartbeat every second, and is dead after 3 s without one: long
// enough to survive a slow second, short enough to end its turns within 5 s. The set n:<node>:live names its turns. Every node
// ends the turns of dead nodes (EndOrphans), and the scripts end each turn once. After an outage of Redis, or a step of the
// server's clock, all other nodes look dead to a node. So it ends no turns of others for the next 3 s. A turn of an unlisted node
// is found by the nodes that poll its session or wait in its queue. A node also compares its own live turns with the store's
// every 2 s, because a fail-over may have lost an ending.
//
// # Wake-ups and polling
//
// A node that shows a session of another node follows it: it has a lease of 20 s, renewed every 5 s. Each node has one inbox, a
// channel to which the scripts publish changes of the sessions that it follows. The node that writes in a session also notifies
// the followers in the pipeline of each tick. A wake-up only says "look again", so a lost one delays text but loses none: nodes
// poll live sessions every second and others every 5 s, and all of them after the inbox has reconnected. Pub/sub has no
// acknowledgements. So a node pings its inbox each second, and reconnects it after 3 s of silence.
//
// A send that waits in a session's queue tries again every second, and is woken when the session is granted to it. A waiter that
// has not tried for 5 s is dropped, and a grant that is not used within 5 s goes to the next waiter.
//
// # Durability
//
// Durability depends on how Redis is configured: a crash loses the writes that the append-only file has not synchronised
// (appendfsync), and a fail-over loses those that the new master has not received. With waitReplicas=N, operations marked durable
// (sessions, messages, endings, keys, idempotency, tickets) return only after N replicas have their writes. Rate counters,
// heartbeats and live text never wait, nor do summaries and vectors. Redis expires keys by itself and must not evict others:
// [Store.Evicts] reports a policy that does.
//
// # Older versions
//
// Names of keys, record formats, words in inboxes and the meaning of fields never change. So old data stays readable, and nodes
// of two versions run side by side during a rolling restart. Each sends its own scripts, which Redis identifies by the SHA-1 of
// their text.
package redis
