package turn

import (
	"context"
	"errors"
	"time"

	"parley/conversation"
	"parley/stream"
)

// join returns a Sent for the turn that an earlier request with the same Idempotency-Key began. The turn may be live on
// this node, live on another node, or over.
func (t *Turns) join(ctx context.Context, owner conversation.Owner, sessionID string, earlier conversation.Replayed) (*Sent, error) {
	sent := &Sent{Position: stream.After(earlier.SentID), Replayed: true}
	if turn := t.live.await(sessionID, earlier.ReplyID); turn != nil {
		sent.Reply, sent.wait = turn.begun.Reply, turn.wait
		return sent, nil
	}
	m, err := t.options.Store.Message(ctx, owner, sessionID, earlier.ReplyID)
	if err != nil {
		return nil, err
	}
	sent.Reply = m.AsBegun()
	switch {
	case m.Status != stream.Streaming:
		sent.wait = func(context.Context) (conversation.Message, error) { return m, nil }
	case t.options.Nodes == nil:
		// The reply is streaming in the store, but this process does not write it, and no other process uses the store.
		return nil, conversation.ErrEndingNotStored
	default:
		sent.wait = func(ctx context.Context) (conversation.Message, error) {
			m, err := t.options.Follower.AwaitEnd(ctx, owner, sessionID, earlier.ReplyID)
			if errors.Is(err, conversation.ErrMessageNotFound) {
				err = conversation.ErrReplyLost
			}
			return m, err
		}
	}
	return sent, nil
}

// resume is called after the response of BeginTurn was lost and the caller got ErrUnavailable. It asks the store for
// the turn until the store responds or a drain begins. If the turn has begun, resume runs the turn, and a repeat of the
// send joins the turn. If a drain begins first, a turn that has begun becomes an orphan, and other nodes end it.
func (t *Turns) resume(slot *Slot, turn conversation.NewTurn) {
	const first, longest = 100 * time.Millisecond, time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		begun, err := t.options.Nodes.ResumeTurn(context.Background(), slot.send.owner, turn)
		switch {
		case err == nil:
			t.begin(t.create(begun, slot)).Start()
			return
		case !errors.Is(err, conversation.ErrUnavailable):
			return
		}
		select {
		case <-t.draining:
			return
		case <-time.After(wait):
		}
	}
}
