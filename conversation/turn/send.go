package turn

import (
	"context"
	"errors"
	"time"

	"parley/conversation"
	"parley/stream"
)

// queueTimeout is the longest wait of a send in its session's queue. Most replies end within this time, and most HTTP
// clients wait longer.
const queueTimeout = 30 * time.Second

// Sent describes a turn that has begun: the position of the sent message, and the reply to it.
type Sent struct {
	Reply conversation.Message // streaming, without text
	// Position is the position after the sent message and before the reply.
	Position stream.Position
	// Replayed means that an earlier request with the same Idempotency-Key began the turn.
	Replayed bool

	turn *Turn // nil if Replayed
	wait func(ctx context.Context) (conversation.Message, error)
}

// Start shows the turn to viewers and calls the model. The receiver of a Sent must call Start, but may acknowledge the
// send first. Start does not block. Calling it again is safe. If Replayed, Start does nothing.
func (s *Sent) Start() {
	if s.turn != nil {
		s.turn.start()
	}
}

// Wait starts the turn, waits until the reply has ended, and returns the reply with any final state. It returns
// ErrSessionNotFound if the session was deleted or expired first, and ErrReplyLost if the store has lost the reply. It
// returns ErrUnavailable if the store does not accept the ending within 2 s, and the error of ctx if ctx ends first. If
// Wait returns ErrUnavailable or the error of ctx, the turn continues.
func (s *Sent) Wait(ctx context.Context) (conversation.Message, error) {
	s.Start()
	return s.wait(ctx)
}

// Result is the result of a send: either Sent, or Err if no turn has begun.
type Result struct {
	Sent *Sent
	Err  error
}

// Send sends a message of the owner of slot, and starts its turn. If the session is busy, Send waits in the queue. It
// does not wait for the reply.
func (t *Turns) Send(ctx context.Context, slot *Slot, m conversation.NewMessage) (*Sent, error) {
	if !t.enter() {
		return nil, conversation.ErrDraining
	}
	defer t.work.Done()
	turn := t.newTurn(m)
	sent, queued, err := t.tryBegin(ctx, slot, turn)
	if queued != nil {
		sent, err = t.awaitTurn(ctx, slot, turn, queued)
	}
	if err != nil {
		return nil, err
	}
	sent.Start()
	return sent, nil
}

// Begin sends a message of the owner of slot. The channel gets one result. If the session is busy and the send is
// queued, the result comes later; otherwise, the channel has it when Begin returns. The receiver must call Start on
// Result.Sent. Before Start, the turn is neither shown nor run. A queued send gives up when ctx ends. The caller may
// release slot when Begin returns, because a queued send and a turn hold the slot themselves.
func (t *Turns) Begin(ctx context.Context, slot *Slot, m conversation.NewMessage) <-chan Result {
	result := make(chan Result, 1)
	if !t.enter() {
		result <- Result{Err: conversation.ErrDraining}
		return result
	}
	defer t.work.Done()
	turn := t.newTurn(m)
	sent, queued, err := t.tryBegin(ctx, slot, turn)
	if queued != nil {
		slot.hold()
		t.work.Go(func() {
			defer slot.Release()
			sent, err := t.awaitTurn(ctx, slot, turn, queued)
			result <- Result{sent, err}
		})
		return result
	}
	result <- Result{sent, err}
	return result
}

// newTurn returns the turn that the store should begin for a message.
func (t *Turns) newTurn(m conversation.NewMessage) conversation.NewTurn {
	return conversation.NewTurn{
		SessionID: m.SessionID, Role: m.Role, Content: m.Content, Tokens: t.options.Count(m.Content), Metadata: m.Metadata,
		OnBusy: m.OnBusy, Waiter: conversation.RandomText(16), Idempotency: m.Idempotency,
	}
}

// tryBegin calls BeginTurn. It returns the sent message, a place in the queue, or an error.
func (t *Turns) tryBegin(ctx context.Context, slot *Slot, turn conversation.NewTurn) (*Sent, *conversation.Queued, error) {
	begun, sent, err := t.beginStored(ctx, slot, turn)
	switch {
	case err != nil:
		if t.options.Nodes != nil && errors.Is(err, conversation.ErrUnavailable) && !errors.Is(err, errNotCalled) {
			slot.hold()
			t.work.Go(func() {
				defer slot.Release()
				t.resume(slot, turn)
			})
		}
		return nil, nil, err
	case begun.Replayed != nil:
		sent, err := t.join(ctx, slot.send.owner, turn.SessionID, *begun.Replayed)
		return sent, nil, err
	}
	return sent, begun.Queued, nil
}

// awaitTurn waits in a session's queue until the store begins the turn or refuses it.
func (t *Turns) awaitTurn(ctx context.Context, slot *Slot, turn conversation.NewTurn, queued *conversation.Queued) (*Sent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queueTimeout, conversation.ErrSessionBusy)
	defer cancel()
	for {
		if turn.OnBusy == conversation.Interrupt {
			t.StopReply(turn.SessionID, queued.Live, stream.ErrCancelled)
		}
		if err := t.awaitGrant(ctx, slot.send.owner, turn.SessionID, turn.Waiter, queued); err != nil {
			return nil, err
		}
		var sent *Sent
		var err error
		sent, queued, err = t.tryBegin(ctx, slot, turn)
		switch {
		case err != nil:
			t.giveUp(slot.send.owner, turn.SessionID, turn.Waiter, err)
			return nil, orCause(ctx, err)
		case queued == nil:
			return sent, nil
		}
	}
}

// awaitGrant waits until the store grants the session to the waiter. If ctx ends or a drain begins first, awaitGrant
// leaves the queue and returns the cause. It does the same, with ErrEndingNotStored, if the session's reply has ended
// and the store fails to store the ending in time: the session could stay busy until the fault of the store ends.
func (t *Turns) awaitGrant(ctx context.Context, owner conversation.Owner, sessionID, waiter string, queued *conversation.Queued) error {
	late, done := t.live.watchEndings(sessionID)
	defer done()
	var err error
	select {
	case <-queued.Granted:
		return nil
	case <-late:
		err = conversation.ErrEndingNotStored
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.draining:
		err = conversation.ErrDraining
	}
	t.leaveQueue(owner, sessionID, waiter)
	return err
}

// orCause returns the cause of ctx if err is the error of ctx, and otherwise err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// giveUp leaves the queue after an error. If a shared store is unavailable, giveUp does not call it, so that the caller
// gets the error soon. The waiter is then removed by resume, or by the store, which removes a waiter that has not
// called for 5 s.
func (t *Turns) giveUp(owner conversation.Owner, sessionID, waiter string, err error) {
	if t.options.Nodes == nil || !errors.Is(err, conversation.ErrUnavailable) {
		t.leaveQueue(owner, sessionID, waiter)
	}
}

func (t *Turns) leaveQueue(owner conversation.Owner, sessionID, waiter string) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	if err := t.options.Store.LeaveQueue(ctx, owner, sessionID, waiter); err != nil {
		t.options.Log.Warn("a place in a session's queue could not be given up", "session", sessionID, "error", err)
	}
}
