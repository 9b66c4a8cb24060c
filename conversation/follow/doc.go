// Package follow shows sessions to the viewers on this node: the turns of this node and those of other nodes.
//
// A viewer subscribes to the session's topic in the hub, which the turns of this node write to. If several nodes share
// the store, the node also follows the session: the store notifies it of a change, and it polls the session. It then
// shows the new messages and text in the same topic, or stops its own turn.
//
//	wake-up, or due ──▶ Poll ──▶ decide(state, update) ──▶ state, actions ──▶ carryOut
//
// [decide] is pure: it holds every rule of following. One goroutine ([Follower.Run]) polls all due sessions in one round
// trip and carries out the actions, so the updates of a session keep their order.
//
// What a viewer gets that reconnects with a position is decided in recovery.go ([Follower.View]).
//
// # Rules
//
//   - A session is followed while it has viewers or a turn here. Idle sessions are polled every 5 s, those with a live
//     reply every second; if a wake-up is lost, viewers are late by that much. A failed poll is retried after 250 ms.
//   - A viewer subscribes before the session is read, so it misses nothing in between.
//   - A turn of this node shows its own messages. Another node's reply grows by the journalled text that polls return,
//     and ends with the message in the store.
//   - Up to 8 messages of other nodes are shown from memory. A viewer that is further behind reads the history.
//   - If the store says that a reply of this node ended elsewhere, other nodes took this node for dead. It interrupts its
//     turn, and EndTurn then returns the stored ending.
//   - If the store no longer has a reply, a fail-over lost it: viewers see it interrupted, with the text that they saw.
//   - Viewers see a new summary once: from the node that stores it, and on other nodes from the poll that finds it. A
//     summary that existed before this node followed the session is not shown.
package follow
