// Package follow shows sessions to the viewers on this node: what this node writes, and what other nodes write.
//
// A viewer subscribes to the session's topic in the hub, which the turns of this node write to. If several nodes share the store,
// the node also follows the session: the store notifies it when the session has changed, it polls what has changed, and it
// shows that in the same topic, or stops its own turn.
//
//	wake-up, or due ──▶ Poll ──▶ decide(state, update) ──▶ state, actions ──▶ carryOut
//
// [decide] is pure: it holds every rule of following. One goroutine ([Follower.Run]) polls all sessions that are due in one trip and
// carries the actions out, so no two updates of a session overtake each other.
//
// What a viewer gets that reconnects with a position is decided in recovery.go ([Follower.View]).
//
// # Rules
//
//   - A session is followed while it has viewers or a turn here. Idle sessions are polled every 5 s, those with a live reply
//     every second; that is how late this node is if a wake-up is lost. A poll that failed is repeated after 250 ms.
//   - A viewer subscribes before the session is read, so nothing falls between the two.
//   - A turn of this node is shown by the turn itself. A reply of another node grows by the journalled text that polls return,
//     and ends with the message that the store has.
//   - Up to 8 messages that others wrote are shown from memory; a viewer that is further behind reads the history.
//   - If the store says that a reply ended elsewhere, this node was taken for dead: it interrupts its turn, and the turn's own
//     EndTurn returns what was decided.
//   - If the store does not have a reply that it had before, a fail-over lost it: viewers see it interrupted, with the text that
//     was shown.
//   - A summary is shown once: the node that stores it shows it, other nodes show it when a poll finds it. What was there when
//     this node began to follow is not shown.
package follow
