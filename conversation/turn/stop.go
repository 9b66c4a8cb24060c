package turn

import (
	"context"
	"time"

	"parley/conversation"
	"parley/stream"
)

// cancelTimeout is how long a cancel waits until the model's request is closed: models close within a moment, and a client should
// not wait longer to learn that this one does not.
const cancelTimeout = 5 * time.Second

// StopReply stops a reply that the store called live a moment ago, if this node writes it. It does not wait for its end.
func (t *Turns) StopReply(sessionID, replyID string, cause error) {
	if turn := t.live.await(sessionID, replyID); turn != nil {
		turn.Stop(cause)
	}
}

// StopAndWait is StopReply and waits for the end, at most 5 s.
func (t *Turns) StopAndWait(sessionID, replyID string, cause error) {
	if turn := t.live.await(sessionID, replyID); turn != nil {
		turn.stopAndWait(cause)
	}
}

// stopAndWait stops the turn and reports whether it ended in time, with the model's request closed.
func (t *Turn) stopAndWait(cause error) bool {
	t.Stop(cause)
	timer := time.NewTimer(cancelTimeout)
	defer timer.Stop()
	select {
	case <-t.done:
		return true
	case <-timer.C:
		return false
	}
}

// Cancel stops a reply, on whichever node it is written, and returns it as it ended once the model's request is closed. It returns
// any other message as it is. ErrCancelPending says that the reply has not stopped in time; the cancel stays wanted.
func (t *Turns) Cancel(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	o := &t.options
	find := o.Store.Message
	if o.Nodes != nil {
		find = o.Nodes.StopReply
	}
	m, err := find(ctx, owner, sessionID, messageID)
	if err != nil || m.Status != stream.Streaming {
		return m, err
	}
	if turn := t.live.await(sessionID, messageID); turn != nil {
		if !turn.stopAndWait(stream.ErrCancelled) {
			return conversation.Message{}, conversation.ErrCancelPending
		}
		return turn.result()
	}
	if o.Nodes != nil {
		ctx, cancel := context.WithTimeoutCause(ctx, cancelTimeout, conversation.ErrCancelPending)
		defer cancel()
		m, err := o.Follower.AwaitEnd(ctx, owner, sessionID, messageID)
		return m, orCause(ctx, err)
	}
	m, err = o.Store.Message(ctx, owner, sessionID, messageID) // it has ended since
	if err == nil && m.Status == stream.Streaming {
		return conversation.Message{}, conversation.ErrCancelPending
	}
	return m, err
}

// Clear removes all messages of a session and returns how many there were. It cancels a live reply first, and waits for its turn
// like a send that interrupts.
func (t *Turns) Clear(ctx context.Context, owner conversation.Owner, sessionID string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queueTimeout, conversation.ErrSessionBusy)
	defer cancel()
	waiter := conversation.RandomText(16)
	for {
		cleared, err := t.options.Store.ClearMessages(ctx, owner, sessionID, waiter)
		if err != nil {
			t.giveUp(owner, sessionID, waiter, err)
			return 0, orCause(ctx, err)
		}
		if cleared.Queued == nil {
			t.options.Summaries.Cancel(sessionID)
			t.options.Hub.Clear(sessionID, cleared.Session.Cleared)
			return cleared.Count, nil
		}
		t.StopReply(sessionID, cleared.Queued.Live, conversation.ErrHistoryCleared)
		if err := t.awaitGrant(ctx, owner, sessionID, waiter, cleared.Queued); err != nil {
			return 0, err
		}
	}
}
