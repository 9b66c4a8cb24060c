// Package conversation is the glossary of the domain: its types, errors, ids and the interfaces of a store. Other
// packages do the work:
//
//   - service: the interface for the server. It connects, starts and drains packages turn, follow and background.
//   - turn: runs a message and the reply to it, from the request to the durable ending. It also has the queue, cancel
//     and clear.
//   - follow: shows sessions to viewers, including the changes that other nodes make.
//   - background: makes summaries and embeddings after replies.
//   - prompt: builds the prompt, and reports the decision about each message. It does no I/O.
//   - window, tokens and usage choose messages for a window, count the tokens of a text, and count usage by the hour.
//     They do no I/O.
//
// # Words
//
// An [Owner] is an account in a [Mode]. A [Session] belongs to one owner. Another owner gets the same response as for a
// session that does not exist. A session expires [Lifetime] after its creation. Activity does not extend this time.
//
// A [Message] comes from the user, from the system, or from the assistant. An assistant's message is called a reply. A
// reply is an append-only text with a state: streaming, then exactly one of completed, cancelled, failed and
// interrupted. A viewer holds an offset into the text, in bytes. A cursor is a position in the whole session: a message
// and an offset.
//
// A turn is a message and the reply to it. The turn begins when the store has written the message and an empty reply.
// It ends when the store has written the reply's final state. The model may be called while the store writes the
// beginning; nothing of the reply is shown or stored before the turn has begun. In the window, a message and its reply are called an
// exchange. A prompt contains an exchange whole or not at all. Only a reply that failed or has no text is left out
// alone. If a reply failed without text, its whole exchange is left out.
//
// A send is in flight on a node until it is refused or its turn is over. It occupies a slot of that node meanwhile.
//
// The settings of a session are its metadata, instructions, context configuration and model configuration. Instructions are
// the first message of every prompt; they are not part of the history.
//
// A prompt is the text that the model gets. A summary replaces old messages in the prompt; the messages stay in the
// history. Dropped messages are neither in the prompt nor in its summary. A replay is the response to a repeated
// request with the same Idempotency-Key. A node is a process that shares its store with other processes. An orphan is a
// live reply of a node that is gone.
//
// # Invariants
//
//   - Turns in one session never overlap, even on different nodes. [Session.Fence] numbers the turns, and the store
//     refuses a write with an older number. So a node that was suspended cannot overwrite a later decision.
//   - A reply ends once. No viewer sees the end of a reply before the store has written it.
//   - Ids rise within a session: their byte order is the order of creation. The store's clock sets all ids and times.
//   - A stored message never changes, except that a live reply grows and then ends.
//   - Each used token is counted once, even if the session is gone when the reply ends.
//   - A turn continues when its caller leaves. It ends early by a cancel, an interrupting send, a clear, the end of the
//     session, a drain, or an error of the model. It also ends early if other nodes take its node for dead.
//   - The text of a reply has at most 256 bytes for each token of its reply room, and at most 1 MiB by default
//     (window.ReplyBytes). A page of messages has at most 3 MiB ([PageBytes]).
//   - A refused send changes nothing: TurnStore.BeginTurn checks the session, the queue, the window and the limits in
//     one operation.
//   - A node that crashes loses the text since its last journal write: one tick and the time of the write. Its replies end
//     as interrupted within 5 s.
//   - A wake-up says only "look again". A lost wake-up delays viewers by up to 6 s (2 s while a reply is live), and
//     never costs text.
//
// # Timings
//
// Callers can notice these times. The comment of each constant gives the reason. turn.endTimeout is longer if a call to
// the store may take longer.
//
//	24 h    life of a session and of an Idempotency-Key                  Lifetime, IdempotencyLifetime
//	30 s    longest wait in a session's queue, which has 32 places       turn.queueTimeout, QueuePlaces
//	 5 s    longest wait of a cancel for the model                       turn.cancelTimeout
//	 2 s    longest wait of a caller for a store that is silent          turn.endTimeout
//	50 ms   interval between two batches of live text in the journal     turn.journalTick
//	10 s    longest wait of a turn for a summary job that it started     background.ownTimeout
//	 2 s    longest wait of a turn for a summary job already running     background.otherTimeout
//	200 ms  longest wait of a turn for the embedding of its message      background.messageTimeout
//	 1 s    interval of polls of a followed session with a live reply    follow.pollLive
//	 5 s    interval of polls of a followed session without live reply   follow.pollIdle
//	20 s    time for which a follow or poll gives a node wake-ups        FollowLease
//	 1 s    interval between two searches for orphans                    turn.orphansEvery
//	 1 s    interval between two looks at the wall clock for expiry      service.clockEvery
package conversation
