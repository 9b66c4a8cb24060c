package turn

import (
	"context"
	"time"

	"parley/conversation"
	"parley/stream"
)

// cancelTimeout is the longest wait of a cancel until the request to the model is closed. Most models close the request
// within milliseconds. If a model does not, the client learns it after 5 s.
const cancelTimeout = 5 * time.Second

// StopReply stops a reply that was live in the store a moment ago, if this node writes it. It does not wait for the end.
func (t *Turns) StopReply(sessionID, replyID string, cause error) {
	if turn := t.live.await(sessionID, replyID); turn != nil {
		turn.Stop(cause)
	}
}

// StopAndWait calls StopReply and waits up to 5 s until the turn is over.
func (t *Turns) StopAndWait(sessionID, replyID string, cause error) {
	if turn := t.live.await(sessionID, replyID); turn != nil {
		turn.stopAndWait(cause)
	}
}

// stopAndWait stops the turn. It returns true if the turn is over within 5 s. The request to the model is then closed.
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

// Cancel stops a reply on the node that writes it, waits until the request to the model is closed, and returns the
// final reply. If the message is not streaming, Cancel returns it unchanged. ErrCancelPending means that the reply has
// not stopped within 5 s; it still stops later.
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
	m, err = o.Store.Message(ctx, owner, sessionID, messageID) // the reply has ended since the first read
	if err == nil && m.Status == stream.Streaming {
		return conversation.Message{}, conversation.ErrCancelPending
	}
	return m, err
}

// Clear removes all messages of a session and returns their number. If the session is busy, Clear cancels the live
// reply and waits at the head of the queue, at most 30 s.
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
