package turn

import (
	"context"
	"errors"
	"time"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/stream"
)

// errNotBegun is the cause with which drop stops a turn.
var errNotBegun = errors.New("the store has not begun the turn")

// beginStored calls BeginTurn and creates the Turn if the store has begun a turn. During the call, the registry counts
// the session as beginning, so that a stop or a poll does not miss the turn. The count goes down even if the store
// panics: package server recovers from the panic, and the session must stay usable.
//
// The store of a single node may report the turn before its commit. Then the model works during the commit. If the store
// does not begin this turn, it is dropped. With Nodes, the response of the store may be lost, so the turn must have begun
// first.
func (t *Turns) beginStored(ctx context.Context, slot *Slot, m conversation.NewTurn) (begun conversation.TurnStart, sent *Sent, err error) {
	var turn *Turn
	if t.options.Nodes == nil {
		m.Prepared = func(prepared conversation.TurnStart) {
			turn = t.create(prepared, slot)
			turn.early = true
			go turn.run()
		}
	}
	defer func() {
		if turn != nil && sent == nil {
			turn.drop()
		}
	}()
	err = t.gates.of(slot.send.owner).call(ctx, t.options.endTimeout(), func() (err error) {
		defer t.live.begin(m.SessionID)()
		begun, err = t.options.Store.BeginTurn(ctx, slot.send.owner, m)
		if err != nil || begun.Queued != nil || begun.Replayed != nil {
			return err
		}
		if turn != nil && turn.begun.Key != begun.Key {
			turn.drop()
			turn = nil
		}
		if turn == nil {
			turn = t.create(begun, slot)
		}
		sent = t.begin(turn)
		return nil
	})
	return begun, sent, err
}

// create returns a new Turn. The caller must call either begin and start, or drop.
func (t *Turns) create(begun conversation.TurnStart, slot *Slot) *Turn {
	turn := &Turn{
		turns: t, begun: begun, slot: slot, since: time.Now(), reply: stream.NewReply(begun.Reply.ID),
		decided: make(chan struct{}), done: make(chan struct{}), ending: ending{began: make(chan struct{})},
	}
	turn.ctx, turn.cancel = context.WithCancelCause(context.Background())
	slot.hold()
	t.work.Add(1) // until run returns
	return turn
}

// begin registers a turn that the store has begun. Viewers see nothing before start.
func (t *Turns) begin(turn *Turn) *Sent {
	turn.topic = t.options.Hub.Open(turn.begun.Session.ID)
	t.live.add(turn)
	t.options.Follower.Began(turn, turn.begun.Session)
	return &Sent{Reply: turn.begun.Reply, Position: stream.After(turn.begun.Message.ID), turn: turn, wait: turn.wait}
}

// start shows the turn to viewers and runs it, if it does not run yet. Only the first call has an effect.
func (t *Turn) start() {
	t.started.Do(func() {
		t.topic.Publish(t.begun.Previous,
			&stream.Entry{ID: t.begun.Message.ID, Created: t.begun.Message.Created()},
			&stream.Entry{ID: t.begun.Reply.ID, Created: t.begun.Reply.Created(), Reply: t.reply})
		t.turns.journal.Add(t.begun.Key, t.reply)
		close(t.decided)
		if !t.early {
			go t.run()
		}
	})
}

// drop stops a turn that runs early and that the store has not begun.
func (t *Turn) drop() {
	t.dropped = true
	t.cancel(errNotBegun)
	close(t.decided)
}

// ask builds the prompt and calls the model. It returns when the request to the model is closed and the turn is started. begun
// is false if the turn was dropped instead.
func (t *Turn) ask() (outcome stream.Outcome, begun bool) {
	limit := t.limit()
	if !t.sendsAll(limit) && !t.awaitStart() {
		return outcome, false
	}
	f := prompt.New(t.begun.Context(), t.begun.Message)
	f.Compare(t.turns.options.Embeddings.OfMessage(t.ctx, f))
	t.fit(f, limit)
	outcome = t.write()
	return outcome, t.awaitStart()
}

// awaitStart waits until start or drop is called. It returns false if the turn was dropped.
func (t *Turn) awaitStart() bool {
	<-t.decided
	return !t.dropped
}

// sendsAll reports whether the prompt has all messages of the session. Such a prompt needs nothing but the result of
// BeginTurn: no embedding, no summary and no texts. And no messages are left out, which viewers would have to see.
func (t *Turn) sendsAll(limit prompt.Limit) bool {
	s := &t.begun.Session // with both messages of the turn
	return s.MessageCount == len(t.begun.History)+2 && s.HistoryTokens <= limit.Size(s.Window()).Budget()
}
