package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"parley/conversation/window"
	"parley/stream"
)

const (
	// queueWait is how long a send waits for the session at most (design section 2, two sends at once).
	queueWait = 30 * time.Second
	// cancelWait is how long a cancel waits for the model's request to close (design section 3).
	cancelWait = 5 * time.Second
	// endWait is how long a waiting caller is kept while the store does not take the ending.
	endWait = 2 * time.Second
)

// errCleared stops a reply whose session's history is being cleared.
var errCleared = fmt.Errorf("%w: its history is being cleared", stream.ErrCancelled)

// NewMessage is a message to send.
type NewMessage struct {
	SessionID string
	Role      Role
	Content   string
	Metadata  json.RawMessage
	OnBusy    OnBusy
	// Idempotency recognises the send if it is repeated; nil for none.
	Idempotency *Idempotency
}

// Exchange is the reply to a message that was sent.
type Exchange struct {
	Reply Message // as it began
	// Position stands before the reply's beginning.
	Position stream.Position
	// Replayed says that the message was sent before, and this is the reply that it had then.
	Replayed bool

	wait func(ctx context.Context) (Message, error)
}

// Wait returns the reply once it has ended, in whatever state: ErrSessionNotFound if its session was gone first,
// ErrUnavailable if the store does not take the ending in time; the reply goes on then, as it does when ctx ends.
func (x *Exchange) Wait(ctx context.Context) (Message, error) { return x.wait(ctx) }

// wait is Exchange.Wait for a turn that is, or was, live here.
func (t *turn) wait(ctx context.Context) (Message, error) {
	select {
	case <-t.done:
		return t.final, t.err
	case <-t.stuck:
		return Message{}, fmt.Errorf("%w: the reply's end is not stored yet", ErrUnavailable)
	case <-ctx.Done():
		return Message{}, ctx.Err()
	}
}

// turn is a reply that is being written here.
type turn struct {
	// static
	key    TurnKey
	since  time.Time // when it began
	reply  *stream.Reply
	topic  *stream.Topic // held until the end
	begun  TurnStart
	cancel context.CancelCauseFunc
	ctx    context.Context // of the model's request
	stuck  chan struct{}   // closed if the store does not take the ending in time
	done   chan struct{}   // closed at the end

	// owned by run
	fitting *fitting
	report  ContextReport

	// set before done is closed
	final Message
	err   error
}

// Send sends a message: it begins a turn when the session is free for it. begun is called once: with the exchange,
// before anything of it is shown to viewers, or with the reason why there is none. If the session is free, it is
// called before Send returns; otherwise, later, from another goroutine. It must not block.
//
// While the send waits for the session it is given up when ctx ends. The turn itself goes on without its caller.
func (s *Service) Send(ctx context.Context, owner Owner, m NewMessage, begun func(*Exchange, error)) {
	s.mu.Lock()
	if s.isDraining() {
		s.mu.Unlock()
		begun(nil, ErrDraining)
		return
	}
	s.work.Add(1)
	s.mu.Unlock()
	send := NewTurn{
		SessionID: m.SessionID, Role: m.Role, Content: m.Content, Tokens: s.Count(m.Content), Metadata: m.Metadata,
		OnBusy: m.OnBusy, Waiter: RandomText(suffixLength), Idempotency: m.Idempotency,
	}
	b, err := s.tryBegin(ctx, owner, send, begun)
	if err == nil && b.Queued != nil {
		go func() {
			defer s.work.Done()
			b, err := s.awaitSession(ctx, owner, send, b.Queued, begun)
			s.finish(ctx, owner, send, b, err, begun)
		}()
		return
	}
	s.finish(ctx, owner, send, b, err, begun)
	s.work.Done()
}

// finish tells the caller of a send that began no turn what it has instead.
func (s *Service) finish(ctx context.Context, owner Owner, send NewTurn, b TurnStart, err error, begun func(*Exchange, error)) {
	switch {
	case err != nil:
		begun(nil, err)
	case b.Replayed != nil:
		begun(s.join(ctx, owner, send.SessionID, *b.Replayed))
	}
}

// join returns the exchange of a turn that the same send began before: it may be live, or over.
func (s *Service) join(ctx context.Context, owner Owner, sessionID string, earlier Replayed) (*Exchange, error) {
	x := &Exchange{Position: stream.After(earlier.SentID), Replayed: true}
	if t := s.awaitTurn(sessionID, earlier.ReplyID); t != nil {
		x.Reply, x.wait = t.begun.Reply, t.wait
		return x, nil
	}
	m, err := s.Store.Message(ctx, owner, sessionID, earlier.ReplyID)
	if err != nil {
		return nil, err
	}
	x.Reply = asBegun(m)
	switch {
	case m.Status != stream.Streaming:
		x.wait = func(context.Context) (Message, error) { return m, nil }
	case s.Nodes == nil:
		return nil, ErrUnavailable // it is neither here nor over
	default:
		x.wait = func(ctx context.Context) (Message, error) {
			m, err := s.awaitEnd(ctx, owner, sessionID, m.ID)
			if errors.Is(err, ErrMessageNotFound) {
				err = errLost
			}
			return m, err
		}
	}
	return x, nil
}

// isDraining reports whether Drain has begun.
func (s *Service) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// tryBegin begins the turn and says so to begun, unless it returns what the send has instead: a place in the queue, or
// the turn that it began before.
func (s *Service) tryBegin(ctx context.Context, owner Owner, send NewTurn, begun func(*Exchange, error)) (TurnStart, error) {
	s.mu.Lock()
	s.beginning[send.SessionID]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.beginning[send.SessionID]--; s.beginning[send.SessionID] == 0 {
			delete(s.beginning, send.SessionID)
		}
		s.begins.Broadcast()
	}()
	b, err := s.Store.BeginTurn(ctx, owner, send)
	switch {
	case err == nil && b.Queued == nil && b.Replayed == nil:
		s.begin(b, begun)
	case s.Nodes != nil && errors.Is(err, ErrUnavailable):
		s.work.Go(func() { s.resume(owner, send) })
	}
	return b, err
}

// resume finds out what has become of a send whose answer from the store was lost. Its caller was told that the service is
// unavailable; but if its turn has begun, it is written like any other, and a repeat of the send joins it.
func (s *Service) resume(owner Owner, send NewTurn) {
	const first, longest = 100 * time.Millisecond, time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		b, err := s.Nodes.ResumeTurn(context.Background(), owner, send)
		switch {
		case err == nil:
			s.begin(b, func(*Exchange, error) {})
			return
		case !errors.Is(err, ErrUnavailable):
			return
		}
		select {
		case <-s.draining:
			return // the other nodes end it, if it is there
		case <-time.After(wait):
		}
	}
}

// awaitSession waits in a session's queue until tryBegin has another answer than that.
func (s *Service) awaitSession(ctx context.Context, owner Owner, send NewTurn, queued *Queued, begun func(*Exchange, error)) (TurnStart, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queueWait, ErrSessionBusy)
	defer cancel()
	for {
		if send.OnBusy == Interrupt {
			s.interrupt(send.SessionID, queued.Live, stream.ErrCancelled)
		}
		if err := s.awaitGrant(ctx, owner, send.SessionID, send.Waiter, queued); err != nil {
			return TurnStart{}, err
		}
		b, err := s.tryBegin(ctx, owner, send, begun)
		if err != nil {
			s.giveUp(owner, send.SessionID, send.Waiter, err)
			return TurnStart{}, orCause(ctx, err)
		}
		if b.Queued == nil {
			return b, nil
		}
		queued = b.Queued
	}
}

// orCause returns why ctx ended if it has, which is then the reason for err too.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return err
}

// awaitGrant waits until a place in a queue is granted; if that is not to be, the place is given up.
func (s *Service) awaitGrant(ctx context.Context, owner Owner, sessionID, waiter string, queued *Queued) error {
	var err error
	select {
	case <-queued.Granted:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.draining:
		err = ErrDraining
	}
	s.leaveQueue(owner, sessionID, waiter)
	return err
}

// giveUp gives up a place in a queue after that error. Where several nodes share a store that is out of reach, it is not asked
// once more, so that the caller knows soon: what was a send, resume gives up, and any place that is not asked for again is free
// 5 s later.
func (s *Service) giveUp(owner Owner, sessionID, waiter string, err error) {
	if s.Nodes == nil || !errors.Is(err, ErrUnavailable) {
		s.leaveQueue(owner, sessionID, waiter)
	}
}

func (s *Service) leaveQueue(owner Owner, sessionID, waiter string) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelWait)
	defer cancel()
	if err := s.Store.LeaveQueue(ctx, owner, sessionID, waiter); err != nil {
		s.Log.Warn("a place in a session's queue could not be given up", "session", sessionID, "error", err)
	}
}

// begin starts the turn that the store has begun: it is shown to the caller first, then to the viewers.
func (s *Service) begin(b TurnStart, begun func(*Exchange, error)) {
	t := &turn{
		key: b.Key, since: time.Now(), begun: b, reply: stream.NewReply(b.Reply.ID), topic: s.hub.Open(b.Session.ID),
		stuck: make(chan struct{}), done: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	s.mu.Lock()
	s.turns[b.Reply.ID] = t
	s.mu.Unlock()
	if s.follower != nil {
		s.follower.begin(t)
	}

	begun(&Exchange{Reply: b.Reply, Position: stream.After(b.Message.ID), wait: t.wait}, nil)
	t.topic.Publish(b.Previous,
		&stream.Entry{ID: b.Message.ID, Created: encode(b.Message)},
		&stream.Entry{ID: b.Reply.ID, Created: encode(asBegun(b.Reply)), Reply: t.reply})
	s.journal.Add(t.key, t.reply)
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		s.run(t)
	}()
}

// run has the model write the reply, and ends the turn: once, durably, before anybody is shown the end.
func (s *Service) run(t *turn) {
	defer t.cancel(nil)
	outcome := stream.Pump(t.ctx, s.Model, s.fit(t), t.reply, s.Timeouts)
	if outcome.Err != nil {
		s.Log.Warn("a reply failed", "session", t.key.SessionID, "message", t.key.ReplyID, "error", outcome.Err)
	}
	text, _ := t.reply.Snapshot()
	final := s.settle(t, outcome, string(text))
	t.final, t.err = s.end(t, final, t.timing(outcome))
	s.journal.Remove(t.key)

	ending := stream.Ending{State: outcome.State}
	if t.err == nil || t.err == errLost {
		ending = endingOf(t.final)
	}
	if errors.Is(context.Cause(t.ctx), errCleared) && t.final.Status == stream.Cancelled {
		ending.Message = nil // viewers are shown that the history was cleared instead
	}
	t.reply.End(ending)
	t.topic.ScheduleTrim()
	s.mu.Lock()
	delete(s.turns, t.key.ReplyID)
	s.mu.Unlock()
	close(t.done)
	s.embedBehind(t)
	s.foldBehind(t)
	t.topic.Close()
}

// end makes the ending durable, however long the store needs. What it returns is what was decided, which is another's
// ending where somebody was first.
func (s *Service) end(t *turn, final Message, timing Timing) (Message, error) {
	slow := time.AfterFunc(endWait, func() { close(t.stuck) })
	defer slow.Stop()
	const first, longest = 10 * time.Millisecond, time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		decided, err := s.Store.EndTurn(context.Background(), t.key, final, timing)
		switch {
		case errors.Is(err, ErrFenced) && decided.ID == "":
			return lost(final), errLost
		case err == nil, errors.Is(err, ErrFenced):
			return decided, nil
		case errors.Is(err, ErrSessionNotFound):
			return Message{}, ErrSessionNotFound
		case wait == first:
			s.Log.Error("a reply's end is not stored; it is tried again until it is",
				"session", t.key.SessionID, "message", t.key.ReplyID, "error", err)
		}
		time.Sleep(wait)
	}
}

// errLost is the error of a turn that the store has not: a fail-over lost it, or the history was cleared before its end was
// known here. A repeat with its idempotency key finds which.
var errLost = fmt.Errorf("%w: the store has lost the reply", ErrUnavailable)

// lost returns how a reply ends that history will not have, and that counts nowhere: its viewers keep what they saw of it.
func lost(final Message) Message {
	final.Status, final.Usage, final.Error, final.FinishReason = stream.Interrupted, &Usage{Estimated: true}, nil, ""
	return final
}

// timing returns how long the turn took, which is over now.
func (t *turn) timing(outcome stream.Outcome) Timing {
	timing := Timing{Duration: max(1, time.Since(t.since))} // 0 would be unknown
	if !outcome.FirstTokenAt.IsZero() {
		timing.FirstToken = max(1, outcome.FirstTokenAt.Sub(t.since))
	}
	return timing
}

// settle returns the reply as it ended, with what it cost.
func (s *Service) settle(t *turn, outcome stream.Outcome, text string) Message {
	m := t.begun.Reply
	m.Content, m.Status, m.Context = text, outcome.State, &t.report
	m.FinishReason = outcome.Result.FinishReason
	if outcome.Err != nil {
		m.Error = &ReplyError{Code: outcome.Err.Code, Message: outcome.Err.Message}
	}
	if u := outcome.Result.Usage; u != nil {
		m.Usage = &Usage{Prompt: u.Prompt, Completion: u.Completion, Total: u.Prompt + u.Completion}
	} else {
		u := Usage{Completion: s.Count(text), Prompt: t.report.PromptTokens, Estimated: true}
		if outcome.State == stream.Failed && text == "" {
			u.Prompt = 0 // the model never took it
		}
		u.Total = u.Prompt + u.Completion
		m.Usage = &u
	}
	m.Tokens = m.Usage.Completion
	if t.begun.Session.Context.RetentionPolicy == Semantic {
		m.Terms = window.TermsOf(t.begun.Message.Content, text)
	}
	return m
}
