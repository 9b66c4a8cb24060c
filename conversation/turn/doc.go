// Package turn runs turns. A turn is a message, and the reply that the model writes to it. The package begins turns in
// the store, queues them while their session is busy, calls the model, makes the ending durable, and stops replies.
//
// # States of a turn
//
//	state     action                                                method      ends when
//	begun     the store has the message and an empty reply          Turns.begin  its sender calls Sent.Start
//	fitting   the prompt is built; old messages are summarised      Turn.fit     the prompt is known (17 s at most)
//	writing   the model writes; the reply is journalled             Turn.write   the model's request is closed
//	ending    the ending is offered to the store                    Turn.end     the store has decided
//	over      viewers see the ending; waiting callers get the reply Turn.show    the background work is started
//
// On the store of a single node, a turn may run early: fitting and writing begin while the store commits the beginning
// (Turn.ask). Nothing of the turn is shown, journalled or acknowledged before the commit. If the commit fails, the turn is
// dropped: its request to the model is closed, and its sender gets the error. A turn runs early only if the prompt has all
// messages of the session. Otherwise the model needs more than the result of BeginTurn: a summary, an embedding or texts.
//
// A turn moves only down this list, with one exception: if the provider refuses the prompt as too long, the turn goes back
// from writing to fitting, at most twice, and plans for the sizes in the refusal. The reply has no text then.
//
// A stop cancels Turn.ctx with a cause, which decides how the reply ends. Fitting
// then ends at once. Writing ends when the request to the model is closed. The store decides once which ending counts:
//
//	decision  the store has                                         viewers get; callers get
//	stored    this ending, or an ending that was stored earlier     the stored message; the stored message
//	lost      no such reply: a fail-over or a clear removed it      interrupted, with the same text; ErrReplyLost
//	gone      no such session                                       the end of the session; ErrSessionNotFound
//	abandoned unknown: a drain did not wait any longer              no end; ErrEndingNotStored
//
// # A send
//
//	            ┌─ free ────────────▶ begun
//	BeginTurn ──┼─ replayed ────────▶ the send joins the earlier turn: live here, live on another node, or over
//	            ├─ busy, enqueue ───▶ queued ── granted ──▶ BeginTurn again
//	            ├─ busy, interrupt ─▶ queued in front; the live reply is stopped
//	            └─ busy, reject ────▶ ErrSessionBusy
//
// # Rules
//
//   - [Turns.Begin] never waits for a busy session: the result of a queued send arrives on the returned channel.
//     [Turns.Send] waits.
//   - Nothing of a turn is shown before its sender calls [Sent.Start]. So a socket can acknowledge the send first.
//   - A queued send gives up after 30 s, when its caller leaves, in a drain, and when the store has failed for 2 s to
//     store the ending of the reply before it. A turn that has begun continues without its caller.
//   - A send takes a slot before the node does any work for it (TakeSlot). The slot is free again when the send and its
//     turn are over.
//   - No viewer or caller sees an ending before it is stored. The node sends the ending to the store until the store
//     accepts or refuses it, or until 2 s after the timeout of a drain. A caller waits 2 s for a store that is silent or
//     fails, and 30 s for a store that is busy with the calls of other turns.
//   - If several nodes share the store, at most 32 calls of BeginTurn and EndTurn run at the same time for a group of
//     owners (see gate). Further calls wait as long as the store responds to the running ones.
//   - The text of a reply has at most the tokens of the reply room. The provider enforces this, or, if the model reasons,
//     boundedTo. A text may have more only if the session has a larger maxOutputTokens, if the provider counts otherwise, or
//     if the model ignores its limit. If then the window has no summaries, it may be too small for a later send.
//   - A cancel is acknowledged when the request to the model is closed. If that takes over 5 s, the caller gets
//     ErrCancelPending, and the reply still stops later.
//   - If the store's response to BeginTurn is lost, the caller gets ErrUnavailable. The node then asks the store
//     whether the turn has begun. If so, the node runs the turn, and a repeat of the send joins the turn.
//   - Every node searches the store for orphans once a second, and ends them. A process also does so before it serves
//     requests.
package turn
