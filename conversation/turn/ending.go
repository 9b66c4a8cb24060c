package turn

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"parley/conversation"
)

// endTimeout is the longest wait of a caller for a store that does not store the ending. 2 s is enough, because clients
// retry after a 503. If several nodes share the store, and the timeout of a call to the store is longer, a caller waits
// for that timeout.
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
	abandoned          // a drain gave up before the store accepted or refused the ending
)

// ending is the part of a Turn that callers watch while the ending is offered to the store.
type ending struct {
	since  time.Time     // set before began is closed
	began  chan struct{} // closed when the ending is first offered
	failed atomic.Bool   // set when a call of EndTurn has failed for another reason than a busy store
}

// end offers the ending to the store until the store accepts or refuses it, and sets decision and final.
//
// It retries until a drain gives up, 2 s after the drain's timeout. Then end gives up too, and the reply is an orphan:
// another node, or the next process on an embedded store, ends the reply as interrupted.
func (t *Turn) end(offered conversation.Message, timing conversation.Timing) {
	key, log := t.begun.Key, t.turns.options.Log
	t.turns.journal.Remove(key) // before EndTurn, so that no late batch brings the text back after the store has deleted it
	t.ending.since = time.Now()
	close(t.ending.began)
	const first, longest = 10 * time.Millisecond, time.Second
	var late *time.Timer
	for wait := first; t.decision == undecided; wait = min(2*wait, longest) {
		decided, err := t.offer(key, offered, timing)
		switch {
		case errors.Is(err, conversation.ErrFenced) && decided.ID == "":
			t.decision, t.final = lost, offered.AsLost()
		case err == nil, errors.Is(err, conversation.ErrFenced):
			t.decision, t.final = stored, decided
		case errors.Is(err, conversation.ErrSessionNotFound):
			t.decision = gone
		case t.turns.storing.Err() != nil:
			t.decision = abandoned
			log.Error("a reply's ending is not stored, because the server stops; the reply will end as interrupted",
				"session", key.SessionID, "message", key.ReplyID, "error", err)
			return
		default:
			if wait == first {
				log.Error("a reply's ending is not stored; retrying until it is", "session", key.SessionID, "message", key.ReplyID, "error", err)
			}
			if !errors.Is(err, conversation.ErrStoreBusy) {
				t.ending.failed.Store(true)
				late = t.wakeQueued(late)
			}
			t.turns.pause(wait)
		}
	}
}

// wakeQueued ends the queued sends of the session if the ending is still not stored after endTimeout, and again at each
// later failed attempt. late is nil at the first call; later, it is the timer that the call before has returned.
func (t *Turn) wakeQueued(late *time.Timer) *time.Timer {
	wake := func() {
		if !t.Over() {
			t.turns.live.endingIsLate(t.begun.Key.SessionID)
		}
	}
	left := t.turns.options.endTimeout() - time.Since(t.ending.since)
	switch {
	case left <= 0:
		wake()
	case late == nil:
		return time.AfterFunc(left, wake)
	}
	return late
}

// offer calls EndTurn once. The call ends early when a drain gives up. If the drain gave up before the call, the call
// still has endTimeout, because perhaps only the model was slow, and the store works.
func (t *Turn) offer(key conversation.TurnKey, offered conversation.Message, timing conversation.Timing) (decided conversation.Message, err error) {
	ctx := t.turns.storing
	if ctx.Err() != nil {
		last, cancel := context.WithTimeout(context.Background(), t.turns.options.endTimeout())
		defer cancel()
		ctx = last
	}
	err = t.turns.gates.of(key.Owner).call(ctx, t.turns.options.endTimeout(), func() (err error) {
		decided, err = t.turns.options.Store.EndTurn(ctx, key, offered, timing)
		return err
	})
	return decided, err
}

// pause waits for a duration, or until a drain gives up.
func (t *Turns) pause(wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-t.storing.Done():
	}
}

// patience returns how much longer a caller should wait for the ending; 0 or less if the caller should get an error.
// t.ending.began must be closed.
//
// A busy store is not a failed store. So if the store has not failed for this ending, and responds to other calls, the
// caller waits up to queueTimeout.
func (t *Turn) patience() time.Duration {
	timeout := t.turns.options.endTimeout()
	if t.ending.failed.Load() {
		return timeout - time.Since(t.ending.since)
	}
	return t.turns.gates.of(t.begun.Key.Owner).patience(t.ending.since, timeout)
}

// result returns the final message, or the reason why there is none. The turn must be over.
func (t *Turn) result() (conversation.Message, error) {
	switch t.decision {
	case lost:
		return t.final, conversation.ErrReplyLost
	case gone:
		return conversation.Message{}, conversation.ErrSessionNotFound
	case abandoned:
		return conversation.Message{}, conversation.ErrEndingNotStored
	}
	return t.final, nil
}

// wait implements Sent.Wait for a turn of this node.
func (t *Turn) wait(ctx context.Context) (conversation.Message, error) {
	if t.Over() { // checked first, so that a stored ending counts even if ctx has ended too
		return t.result()
	}
	select {
	case <-t.done:
		return t.result()
	case <-t.ending.began:
	case <-ctx.Done():
		return conversation.Message{}, ctx.Err()
	}
	for patience := t.patience(); patience > 0; patience = t.patience() {
		select {
		case <-t.done:
			return t.result()
		case <-time.After(patience):
		case <-ctx.Done():
			return conversation.Message{}, ctx.Err()
		}
	}
	if t.Over() { // the ending was stored in the last moment
		return t.result()
	}
	return conversation.Message{}, conversation.ErrEndingNotStored
}
