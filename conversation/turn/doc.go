// Package turn runs turns: a message, and the reply to it that the model writes. It begins them in the store, queues those of a
// busy session, has the model write, makes the ending durable, and stops replies.
//
// # States of a turn
//
//	state     what happens                                          method      left when
//	begun     the store has the message and an empty reply          Turns.begin  its sender calls Sent.Start
//	fitting   the window is fitted; old messages are summarised     Turn.fit    the prompt is known: at most 17 s
//	writing   the model writes; the reply is journalled             Turn.write  the model's request is closed
//	ending    the ending is offered to the store                    Turn.end    the store has decided
//	over      viewers are shown the ending; waiters are released    Turn.show   the background work is started
//
// A turn only moves downwards. A stop, for whatever cause, cancels Turn.ctx: fitting and writing end at once, and the cause decides
// how the reply ends. The store decides once what the ending is:
//
//	decision  what the store has                                    what viewers and callers get
//	stored    this ending, or that of whoever was first             the message as it was stored
//	lost      no such reply: a fail-over lost it, or it was cleared  interrupted, with the text seen; ErrReplyLost
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
//   - [Turns.Begin] never waits for the session; a queued send reports on the returned channel. [Turns.Send] waits.
//   - Nothing of a turn is shown before its sender calls [Sent.Start]. So a socket can write its acknowledgement first.
//   - A queued send is given up after 30 s, when its caller leaves, and in a drain. A turn that has begun goes on without its
//     caller.
//   - An ending is stored before anybody sees it. It is offered until the store answers; callers wait 2 s for that.
//   - A cancel is acknowledged when the model's request is closed. After 5 s the caller is told that it is pending; it stays
//     wanted.
//   - If the store's response to BeginTurn is lost, the caller gets ErrUnavailable. The node finds out by itself what happened; a
//     turn that has begun is run, and a repeat of the send joins it.
//   - Every node ends orphans, once a second. The only process on a store ends its own before it starts.
package turn
