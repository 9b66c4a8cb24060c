// Package turn runs turns: a message, and the reply to it that the model writes. It begins turns in the store, queues
// them while their session is busy, calls the model, makes the ending durable, and stops replies.
//
// # States of a turn
//
//	state     what happens                                          method      left when
//	begun     the store has the message and an empty reply          Turns.begin  its sender calls Sent.Start
//	fitting   the window is fitted; old messages are summarised     Turn.fit     the prompt is known: at most 17 s
//	writing   the model writes; the reply is journalled             Turn.write   the model's request is closed
//	ending    the ending is offered to the store                    Turn.end     the store has decided
//	over      viewers see the ending; waiting callers are released  Turn.show    the background work is started
//
// A turn moves only down this list. A stop cancels Turn.ctx with a cause. Fitting and writing then end at once, and the
// cause decides how the reply ends. The store decides once which ending counts:
//
//	decision  what the store has                                    what viewers and callers get
//	stored    this ending, or one that was stored earlier           the stored message
//	lost      no such reply: a fail-over lost it, or it was cleared  interrupted, with the text that they saw; ErrReplyLost
//	gone      no such session                                       the session's end; ErrSessionNotFound
//
// # A send
//
//	            ┌─ free ────────────▶ begun
//	BeginTurn ──┼─ replayed ────────▶ the earlier turn is joined: here, on another node, or over
//	            ├─ busy, enqueue ───▶ queued ── granted ──▶ BeginTurn again
//	            ├─ busy, interrupt ─▶ queued in front; the live reply is stopped
//	            └─ busy, reject ────▶ ErrSessionBusy
//
// # Rules
//
//   - [Turns.Begin] never waits for a busy session: a queued send gets its result on the returned channel. [Turns.Send]
//     waits.
//   - Nothing of a turn is shown before its sender calls [Sent.Start]. So a socket can acknowledge the send first.
//   - A queued send gives up after 30 s, when its caller leaves, and in a drain. A turn that has begun goes on without
//     its caller.
//   - No viewer or caller sees an ending before it is stored. The node offers it until the store answers; callers wait
//     2 s for that.
//   - A cancel is acknowledged when the model's request is closed. If that takes over 5 s, the caller gets
//     ErrCancelPending, and the reply still stops later.
//   - If the store's response to BeginTurn is lost, the caller gets ErrUnavailable. The node then asks the store until it
//     knows. If the turn has begun, the node runs it, and a repeat of the send joins it.
//   - Every node ends orphans once a second. Before a process serves, it ends the orphans that it finds in the store.
package turn
