package turn

import (
	"context"
	"errors"
	"time"

	"parley/conversation"
	"parley/stream"
)

// queueTimeout is how long a send waits for its session: long enough for most replies to end, shorter than the timeouts of
// most HTTP clients.
const queueTimeout = 30 * time.Second

// Sent is a message that has its turn, and so a reply.
type Sent struct {
	Reply conversation.Message // as it began
	// Position is before the beginning of the reply.
	Position stream.Position
	// Replayed says that the same send began the turn before.
	Replayed bool

	turn *Turn // nil if it is over, or another node's
	wait func(ctx context.Context) (conversation.Message, error)
}

// Start shows the turn to viewers and has the model write the reply. The receiver of a Sent calls it as soon as it has acknowledged
// the send. It does not block; calling it again does nothing.
func (s *Sent) Start() {
	if s.turn != nil {
		s.turn.start()
	}
}

// Wait starts the turn and returns the reply once it has ended, in whatever state. It returns ErrSessionNotFound if the session
// was gone first, and ErrUnavailable if the store does not take the ending in time. The reply goes on then, and when ctx ends.
func (s *Sent) Wait(ctx context.Context) (conversation.Message, error) {
	s.Start()
	return s.wait(ctx)
}

// Result is what became of a send: Sent, or the reason why there is none.
type Result struct {
	Sent *Sent
	Err  error
}

// Send sends a message, starts its turn, and waits for neither viewers nor the model. If the session is busy, it waits in the
// queue.
func (t *Turns) Send(ctx context.Context, owner conversation.Owner, m conversation.NewMessage) (*Sent, error) {
	r := <-t.Begin(ctx, owner, m)
	if r.Err != nil {
		return nil, r.Err
	}
	r.Sent.Start()
	return r.Sent, nil
}

// Begin sends a message. The channel gets one result: before Begin returns, unless the session is busy and the send is queued. The
// receiver calls Start on what was sent; the turn is not shown and not run before. While the send is queued, it is given up when
// ctx ends.
func (t *Turns) Begin(ctx context.Context, owner conversation.Owner, m conversation.NewMessage) <-chan Result {
	result := make(chan Result, 1)
	if !t.enter() {
		result <- Result{Err: conversation.ErrDraining}
		return result
	}
	defer t.work.Done()
	turn := conversation.NewTurn{
		SessionID: m.SessionID, Role: m.Role, Content: m.Content, Tokens: t.options.Count(m.Content), Metadata: m.Metadata,
		OnBusy: m.OnBusy, Waiter: conversation.RandomText(16), Idempotency: m.Idempotency,
	}
	sent, queued, err := t.tryBegin(ctx, owner, turn)
	if queued != nil {
		t.work.Go(func() {
			sent, err := t.awaitTurn(ctx, owner, turn, queued)
			result <- Result{sent, err}
		})
		return result
	}
	result <- Result{sent, err}
	return result
}

// tryBegin asks the store for the turn. It returns what was sent, a place in the queue, or an error.
func (t *Turns) tryBegin(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (*Sent, *conversation.Queued, error) {
	begun, sent, err := t.beginStored(ctx, owner, turn)
	switch {
	case err != nil:
		if t.options.Nodes != nil && errors.Is(err, conversation.ErrUnavailable) {
			t.work.Go(func() { t.resume(owner, turn) })
		}
		return nil, nil, err
	case begun.Replayed != nil:
		sent, err := t.join(ctx, owner, turn.SessionID, *begun.Replayed)
		return sent, nil, err
	}
	return sent, begun.Queued, nil
}

// beginStored calls BeginTurn and takes over the turn that it began, if any. Meanwhile the session counts as beginning, so that
// nobody misses the turn. That ends even if the store panics: package server recovers, and the session must stay usable.
func (t *Turns) beginStored(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, *Sent, error) {
	defer t.live.begin(turn.SessionID)()
	begun, err := t.options.Store.BeginTurn(ctx, owner, turn)
	if err != nil || begun.Queued != nil || begun.Replayed != nil {
		return begun, nil, err
	}
	return begun, t.begin(begun), nil
}

// awaitTurn waits in a session's queue until the store has begun the turn, or refuses it.
func (t *Turns) awaitTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn, queued *conversation.Queued) (*Sent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queueTimeout, conversation.ErrSessionBusy)
	defer cancel()
	for {
		if turn.OnBusy == conversation.Interrupt {
			t.StopReply(turn.SessionID, queued.Live, stream.ErrCancelled)
		}
		if err := t.awaitGrant(ctx, owner, turn.SessionID, turn.Waiter, queued); err != nil {
			return nil, err
		}
		var sent *Sent
		var err error
		sent, queued, err = t.tryBegin(ctx, owner, turn)
		switch {
		case err != nil:
			t.giveUp(owner, turn.SessionID, turn.Waiter, err)
			return nil, orCause(ctx, err)
		case queued == nil:
			return sent, nil
		}
	}
}

// awaitGrant waits until a place in a queue is granted. Otherwise it gives the place up and returns why.
func (t *Turns) awaitGrant(ctx context.Context, owner conversation.Owner, sessionID, waiter string, queued *conversation.Queued) error {
	var err error
	select {
	case <-queued.Granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.draining:
		err = conversation.ErrDraining
	}
	t.leaveQueue(owner, sessionID, waiter)
	return err
}

// orCause returns why ctx ended, if that is why there is an error.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// giveUp gives up a place in a queue after an error. A shared store that is out of reach is not asked again, so that the caller
// is told soon: resume gives up a send's place, and a place that nobody asks for is free after 5 s.
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
