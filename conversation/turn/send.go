package turn

import (
	"context"
	"errors"
	"time"

	"parley/conversation"
	"parley/stream"
)

// queueTimeout is how long a send waits in its session's queue: long enough for most replies to end, shorter than the
// timeouts of most HTTP clients.
const queueTimeout = 30 * time.Second

// Sent is a message whose turn has begun, with the reply to it.
type Sent struct {
	Reply conversation.Message // streaming, without text
	// Position is the position after the message, before its reply.
	Position stream.Position
	// Replayed means that an earlier request with the same Idempotency-Key began the turn.
	Replayed bool

	turn *Turn // nil if Replayed
	wait func(ctx context.Context) (conversation.Message, error)
}

// Start shows the turn to viewers and calls the model. The receiver of a Sent calls it as soon as it has acknowledged the
// send. Start does not block. Calling it again is safe. After a replay it does nothing.
func (s *Sent) Start() {
	if s.turn != nil {
		s.turn.start()
	}
}

// Wait starts the turn, waits until the reply has ended, and returns it in any state. It returns ErrSessionNotFound if
// the session was deleted or expired before that, ErrReplyLost if the store lost the reply, ErrUnavailable if the store
// does not accept the ending within 2 s, and ctx's error. In the last two cases the turn goes on.
func (s *Sent) Wait(ctx context.Context) (conversation.Message, error) {
	s.Start()
	return s.wait(ctx)
}

// Result is the result of a send: Sent, or the error if no turn has begun.
type Result struct {
	Sent *Sent
	Err  error
}

// Send sends a message and starts its turn. It waits in the queue if the session is busy, but not for viewers or the
// model.
func (t *Turns) Send(ctx context.Context, owner conversation.Owner, m conversation.NewMessage) (*Sent, error) {
	r := <-t.Begin(ctx, owner, m)
	if r.Err != nil {
		return nil, r.Err
	}
	r.Sent.Start()
	return r.Sent, nil
}

// Begin sends a message. The channel gets one result: before Begin returns, unless the send is queued because the session
// is busy. The receiver must call Start on Result.Sent; before that, the turn is neither shown nor run. While the send is
// queued, it gives up when ctx ends.
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

// tryBegin calls BeginTurn. It returns the sent message, a place in the queue, or an error.
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

// beginStored calls BeginTurn and takes over the turn that it began, if any. Meanwhile the session counts as beginning,
// so that nobody misses the turn. That ends even if the store panics: package server recovers, and the session must stay
// usable.
func (t *Turns) beginStored(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, *Sent, error) {
	defer t.live.begin(turn.SessionID)()
	begun, err := t.options.Store.BeginTurn(ctx, owner, turn)
	if err != nil || begun.Queued != nil || begun.Replayed != nil {
		return begun, nil, err
	}
	return begun, t.begin(begun), nil
}

// awaitTurn waits in a session's queue until the store begins the turn or refuses it.
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

// awaitGrant waits until the waiter is granted the session. It leaves the queue and returns the cause if ctx ends or a
// drain begins.
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

// orCause returns the cause of ctx's end if err is ctx's error, and otherwise err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// giveUp leaves the queue after an error. It does not call a shared store that is unavailable, so that the caller gets
// the error soon: resume gives up the place of a send, and the store frees a place 5 s after its waiter has stopped
// asking.
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
