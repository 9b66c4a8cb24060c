package turn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"parley/conversation"
)

// endTimeout is the longest wait of a caller for the store to accept the ending. 2 s is enough, because clients retry
// after a 503. If several nodes share a store whose calls may take longer, that time is the longest wait.
const endTimeout = 2 * time.Second

func (o *Options) endTimeout() time.Duration {
	if o.Nodes == nil {
		return endTimeout
	}
	return max(endTimeout, o.Nodes.Timeout())
}

// decision is the store's response to the ending of a turn.
type decision int

const (
	undecided decision = iota
	stored             // the store has this ending, or an ending that was stored earlier
	lost               // the store has the session, but not the reply
	gone               // the store does not have the session
)

// end offers the ending to the store until the store accepts or refuses it, and sets decision and final.
//
// It retries without a limit, even in a drain. If it gave up, the reply would be an orphan, and another process would
// end the reply as interrupted. So Turns.Drain does not return while the store cannot be reached.
func (t *Turn) end(offered conversation.Message, timing conversation.Timing) {
	key, log := t.begun.Key, t.turns.options.Log
	t.turns.journal.Remove(key) // before EndTurn, so that no late batch brings the text back after the store has deleted it
	timeout := time.AfterFunc(t.turns.options.endTimeout(), func() { close(t.late) })
	defer timeout.Stop()
	const first, longest = 10 * time.Millisecond, time.Second
	for wait := first; t.decision == undecided; wait = min(2*wait, longest) {
		decided, err := t.turns.options.Store.EndTurn(context.Background(), key, offered, timing)
		switch {
		case errors.Is(err, conversation.ErrFenced) && decided.ID == "":
			t.decision, t.final = lost, offered.AsLost()
		case err == nil, errors.Is(err, conversation.ErrFenced):
			t.decision, t.final = stored, decided
		case errors.Is(err, conversation.ErrSessionNotFound):
			t.decision = gone
		default:
			if wait == first {
				log.Error("a reply's ending is not stored; retrying until it is", "session", key.SessionID, "message", key.ReplyID, "error", err)
			}
			time.Sleep(wait)
		}
	}
}

// result returns the final message, or the reason why there is none. The turn must be over.
func (t *Turn) result() (conversation.Message, error) {
	switch t.decision {
	case lost:
		return t.final, conversation.ErrReplyLost
	case gone:
		return conversation.Message{}, conversation.ErrSessionNotFound
	}
	return t.final, nil
}

// wait implements Sent.Wait for a turn of this node.
func (t *Turn) wait(ctx context.Context) (conversation.Message, error) {
	if t.Over() { // checked first: even if late is closed too, the stored ending counts
		return t.result()
	}
	select {
	case <-t.done:
		return t.result()
	case <-t.late:
		return conversation.Message{}, fmt.Errorf("%w: the reply's ending is not stored yet", conversation.ErrUnavailable)
	case <-ctx.Done():
		return conversation.Message{}, ctx.Err()
	}
}
