// Package conversation is the glossary of the domain: its types, errors, ids and the interfaces of a store. Other
// packages do the work:
//
//   - service: the interface for the server. It connects the other packages, starts them and drains them.
//   - turn: a message and the reply to it, from the request to the durable ending; the queue; cancel and clear.
//   - follow: viewers, and the changes that other nodes make in the sessions that this node shows.
//   - background: summaries and embeddings, made after replies.
//   - prompt: chooses the messages that the model gets, and reports what happened to the others. Pure.
//   - window, tokens, usage: the choice of messages for a window, the tokens of a text, and usage by the hour. Pure.
//
// # Words
//
// An [Owner] is an account in a [Mode]. A [Session] belongs to one owner. Another owner gets the same response as for a
// session that does not exist. A session lives for [Lifetime] from its creation, and activity does not extend that.
//
// A [Message] comes from the user, from the system, or from the assistant. An assistant's message is called a reply. A
// reply is an append-only text with a state: streaming, then exactly one of completed, cancelled, failed and interrupted.
// Its viewers hold offsets into that text, in bytes. A cursor is a position in the whole session: a message and an
// offset.
//
// A turn is a message and the reply to it. It begins when the store has written both, and ends when the store has written
// the reply's final state. In the window, a message and its reply are called an exchange: the model gets both or neither.
//
// A prompt is the text that the model gets. A summary replaces old messages in it; the messages stay in the history.
// Dropped messages are left out of a prompt without a trace. A replay is the response to a repeated request with the same
// Idempotency-Key. A node is a process that shares its store with others. An orphan is a reply whose node is gone.
//
// # Invariants
//
//   - Turns in one session never overlap, over all nodes. [Session.Fence] numbers them; the store refuses a write that
//     carries an older number, so a node that was suspended cannot overwrite a later decision.
//   - A reply ends once. No viewer sees the end of a reply before the store has written it.
//   - Ids rise within a session and sort by creation, also as bytes. The store's clock sets all ids and times.
//   - A message never changes once it is stored, except that a reply ends.
//   - Each token of usage is counted once, even if the session is gone when the reply ends.
//   - A turn goes on when its caller leaves. Only a cancel, the end of the session, a drain, or the model ends it early.
//   - A refusal changes nothing: TurnStore.BeginTurn checks the session, the queue, the window and the limits in one operation.
//   - A node that crashes loses at most the text of its last journal tick. Its replies end as interrupted within 5 s.
//   - A wake-up says only "look again". A lost wake-up costs up to 5 s (1 s while a reply is live), never text.
//
// # Timings
//
// Each constant has its reason beside it. Callers notice these:
//
//	24 h    life of a session and of an Idempotency-Key       Lifetime, IdempotencyLifetime
//	30 s    longest wait in a session's queue, 32 places      turn.queueTimeout, QueuePlaces
//	 5 s    a cancel waits so long for the model              turn.cancelTimeout
//	 2 s    a caller waits so long for a stored ending        turn.endTimeout
//	50 ms   journal of live text, one batch for all replies   turn.journalTick
//	10 s    a turn waits so long for a summary it started     background.ownTimeout
//	 2 s    and for one that was under way already            background.otherTimeout
//	200 ms  a turn waits so long for its message's embedding  background.messageTimeout
//	 1 s    poll of followed sessions with a live reply       follow.pollLive
//	 5 s    poll of the others                                follow.pollIdle
//	20 s    a followed session's wake-ups last so long        FollowLease
//	 1 s    search for orphans                                turn.orphansEvery
package conversation
