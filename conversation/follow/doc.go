// Package follow shows sessions to the viewers on this node. It shows the turns of this node and the turns of other
// nodes.
//
// A viewer subscribes to the session's topic in the hub. The turns of this node write to this topic. If several nodes
// share the store, the node also follows the session: after each change, the store sends a wake-up, and the node polls
// the session. The node then shows the new messages and text in the same topic, or stops its own turn.
//
//	wake-up, or due ──▶ Poll ──▶ decide(state, update) ──▶ state, actions ──▶ carryOut
//
// [decide] is pure: it holds every rule of following. One goroutine ([Follower.Run]) polls all due sessions in one round
// trip and carries out the actions, so the updates of a session keep their order.
//
// After a reconnect, a viewer names its position. recovery.go decides from which event the viewer continues
// ([Follower.View]).
//
// # Rules
//
//   - A session is followed while it has viewers or a live turn on this node. It is polled every second while it has a
//     live reply, otherwise every 5 s. If a wake-up is lost, viewers see the change at the next poll: after 2 s at most
//     with a live reply, otherwise after 6 s at most. A failed poll is retried after 250 ms.
//   - A viewer subscribes before View reads the session. So the viewer misses no change in between.
//   - A turn of this node shows its own messages. Another node's reply grows by the journalled text that polls return.
//     Its ending is the stored message.
//   - Up to 8 messages of other nodes are shown from memory. A viewer that is further behind reads the history.
//   - If a poll finds that a live reply of this node has ended in the store, another node took this node for dead. This
//     node interrupts its turn, and EndTurn then returns the stored ending.
//   - If the store no longer has a reply, a fail-over lost the reply. Viewers see the reply end as interrupted, with
//     the text that they have seen.
//   - Viewers see a new summary once. The node that stores the summary shows it at once; other nodes show it after the
//     poll that finds it. A summary that existed before the node followed the session is not shown.
package follow
