// Package redis stores accounts, API keys, limits, sessions and live replies in Redis 7.0 or newer, or in Valkey. Several nodes
// can share one store. The store works with a single server, with Sentinels, and with a Cluster ([Open] explains the URLs).
//
// # One operation, one script
//
// Almost every operation is one Lua script, which Redis runs atomically. The file NAME.go calls the script lua/NAME.lua. The
// head of the Lua file documents KEYS, ARGV and the result. Scripts share the libraries in lua/lib. Go alone defines limits,
// timeouts and names of keys: Lua gets them in a generated prelude (compose.go, constants.go, schema.go). A script returns a
// refusal as a value, so an error from Redis is always a fault.
//
// All keys of an account in a mode share one hash tag, so a Cluster keeps them in one slot (schema.go lists all keys). This has
// two effects. First, a script can check the API key, apply the rate limits and run the operation, all in one round trip. Second,
// a script cannot reach another account's keys, because all names of keys in a script contain the tag.
//
// Some keys have no tag: the pointer from the hash of a secret to its API key, the tickets, the heartbeats of all nodes, and
// each node's set of live turns. Redis does not change them atomically with the other keys, but a crash in between does no
// harm. A pointer only leads to the record of an API key, which decides whether the secret works. The set of live turns may
// name turns that are not live. In a Cluster, the set also lacks a live turn if the node died before it could add the turn. A
// poll or a waiter finds such a turn.
//
// Most operations take one round trip; trips_test.go counts the round trips. A turn takes two: one before the call to the model,
// and one after the reply. Finding an API key by its secret takes two: the pointer, and the tier of the account. A ticket takes
// one to create and one to redeem, besides the admission of the request. A change of a session's settings takes two: one to read
// the session, and one to store the result if the settings are still those that were read. The text of all live replies takes one
// round trip a tick, not one a token.
//
// # Lost replies
//
// If a connection breaks, a script may or may not have run. The store sends the script again, once, if the script is marked
// idempotent and does not count a request. The reads are idempotent, and so are the scripts that store the same values again,
// such as heartbeats. BeginTurn recognises its own turn by the waiter, EndTurn by the fencing token. Scripts in a pipeline are
// not sent again, because nodes repeat Journal, Poll and EndOrphans anyway.
//
// After any other lost reply, the operation returns conversation.ErrUnavailable, and the caller decides. ResumeTurn finds the
// turn of a BeginTurn whose reply was lost, or makes sure that the turn never begins. CreateSession is safe to repeat with an
// idempotency key. A repeated DeleteSession or SaveSummary changes nothing.
//
// A call takes 1.8 s at most, so that a request gets its 503 within 2 s if Redis cannot be reached. The parameter timeout of the
// store's URL changes this limit.
//
// # Turns and fencing
//
// Each turn of a session has a higher fencing token than the turn before. A turn ends only by a call with the current token. The
// name of the journal's key contains the token too. Suppose that node A was suspended, and that node B has ended A's turn. Then
// A's EndTurn changes nothing and returns the reply that B has stored. A's late text goes to a journal that nobody reads.
//
// The reservation of a turn has a key of its own, which outlives the session. So usage is settled once, even if the session was
// deleted or has expired.
//
// # Journal
//
// At each tick, a node writes the new text of all its live replies in one pipeline: one SETRANGE for each reply, at the
// reply's offset. The offset makes a repeat harmless, and SETRANGE costs Redis a third of a script. But on an expired key,
// SETRANGE would create a key that never expires. BeginTurn creates the key. A script that checks the key does one write
// about every five minutes. For the same reason, the key of an ended turn stays for five minutes, empty.
//
// # Nodes
//
// A process gets a new node id each time it starts. A node sends a heartbeat every second. It counts as dead after 3 s without a
// heartbeat: a node that misses one heartbeat is not dead, and the turns of a dead node end within 5 s. The set n:<node>:live
// names a node's turns. Every node ends the turns of dead nodes (EndOrphans), and the scripts end each turn once. After an outage
// of Redis, or after a jump of the server's clock, a node sees all other nodes as dead. So it ends no turns of other nodes for
// the next 3 s. A node may die before its first heartbeat. Then other nodes find its turn when they poll the session or wait in
// the session's queue. Every 2 s, a node also compares its own live turns with those in its set, because a fail-over may have
// lost the end of a turn. After a sign of a fail-over, it looks at all its turns that ended in the last minute. The signs are an
// error, a lost connection of the inbox, and a new master of a Cluster.
//
// # Wake-ups and polling
//
// A node follows each session that it shows: it holds a lease of 20 s and renews the lease every 5 s. Each node has one inbox, a
// pub/sub channel. If a script changes a session that the node follows, the script publishes a wake-up to the inbox. At each
// tick, the node that writes a reply also notifies the followers of the session. A wake-up only says "look again", so a lost
// wake-up delays text but loses none. Nodes poll sessions with a live reply every second and others every 5 s. They poll all
// sessions after the inbox has reconnected. Pub/sub has no acknowledgements, so a node pings its inbox each second and reconnects
// after 3 s of silence.
//
// A send that waits in a session's queue tries again every second, and is woken when the session is granted to it. A waiter that
// has not tried for 5 s is dropped, and a grant that is not used within 5 s goes to the next waiter.
//
// # Topology of a Cluster
//
// A master of a Cluster redirects a client if another master serves the slot. But a dead master redirects nobody, and the
// go-redis client then asks for the topology only each minute. So the store asks every second (topology.go), and commands reach a
// promoted replica at most 3 s after its promotion. The connection of the inbox breaks with its server, and the node connects to
// another one. Pub/sub is not sharded: every server of the Cluster gets every wake-up.
//
// While a slot moves to another master, each of its keys is on one of two masters. A script would fail at the first key
// that the other master has, and its earlier writes would stay. So each script names a key that never exists
// (Store.guarded). Then both masters refuse the script until the slot has moved, and the operation returns
// conversation.ErrUnavailable.
//
// # Durability
//
// Durability depends on how Redis is configured. A crash loses the writes that the append-only file has not synchronised
// (appendfsync). A fail-over loses the writes that the new master has not received. With waitReplicas=N, a durable operation
// returns only after N replicas have its writes. The operations that write sessions, messages, ends of turns and API keys are
// durable, and so is the redemption of a ticket. New tickets, heartbeats, live text, summaries and vectors never wait. Redis may
// remove a key only when the key expires: [Store.Evicts] reports a server that would evict keys.
//
// # Older versions
//
// Names of keys, formats of records, words in inboxes, and the meaning of fields never change. So old data stays readable, and
// nodes of two versions run side by side during a rolling restart. Each version can send its own scripts, because Redis
// identifies a script by the SHA-1 of its text.
package redis
