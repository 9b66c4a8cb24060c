package turn

import (
	"context"
	"errors"
	"sync"
	"time"

	"parley/conversation"
	"parley/conversation/background"
	"parley/conversation/prompt"
	"parley/conversation/window"
	"parley/stream"
)

// readTimeout is the longest wait of a turn for the texts of older messages that its window chose. After this time, the
// prompt is built from the newest messages alone.
const readTimeout = 2 * time.Second

// Turn is a turn of this node. The package comment lists its states.
type Turn struct {
	// static
	turns   *Turns
	begun   conversation.TurnStart
	slot    *Slot     // held until the turn is over
	since   time.Time // the time at which create was called
	reply   *stream.Reply
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the turn is over
	started sync.Once
	ending  ending

	early bool // run was started before the store had begun the turn

	// set before decided is closed, by start or drop
	decided chan struct{}
	dropped bool          // the store has not begun the turn
	topic   *stream.Topic // open until the background work is started

	// owned by run
	fitted *prompt.Fit
	report conversation.ContextReport

	// set before done is closed
	decision decision
	final    conversation.Message // empty if decision is gone
}

// run takes the turn through its states. If the turn is dropped, run returns when the request to the model is closed.
func (t *Turn) run() {
	defer t.turns.work.Done()
	defer t.cancel(nil)
	outcome, begun := t.ask()
	if !begun {
		t.slot.Release()
		return
	}
	done := t.turns.endings.enter(t.reply)
	t.end(t.endedBy(outcome), t.timing(outcome))
	t.show(outcome)
	done()
	t.workAfterReply()
	t.topic.Close()
}

// fit plans the prompt for a model with that limit. It cannot fail, but the plan may have an overflow. If a summary takes too long,
// messages are dropped. If texts cannot be read, the prompt has only the newest messages. The report counts the messages that are left
// out.
func (t *Turn) fit(f *prompt.Fit, limit prompt.Limit) {
	o, owner := &t.turns.options, t.begun.Key.Owner
	f.LimitTo(limit)
	f.Plan()
	if f.LacksIndex() {
		f = t.withIndex(f)
	}
	fault := o.Summaries.BeforeReply(t.ctx, owner, f)
	if err := t.readTexts(f); err != nil {
		t.warn("messages for the context window could not be read; the reply is built from the newest alone", err)
		f = f.HistoryOnly()
		f.Plan()
	}
	t.fitted, t.report = f, f.Report()
	t.report.SummaryFault = fault
	if dropped, ok := f.Dropped(); ok {
		o.Hub.NotifySummarised(t.begun.Key.SessionID, dropped)
	}
}

// withIndex reads the index and plans again. The store returns no index with a turn if the history fits the session's own window.
func (t *Turn) withIndex(f *prompt.Fit) *prompt.Fit {
	ctx, cancel := context.WithTimeout(t.ctx, readTimeout)
	defer cancel()
	full := f.Session.Context.MaxTokens // a message of this size makes the store return the index
	c, err := t.turns.options.Store.Context(ctx, t.begun.Key.Owner, t.begun.Key.SessionID, full)
	if err != nil {
		t.warn("the index of the context window could not be read; the newest messages are kept", err)
		return f
	}
	f = f.WithIndex(c.Index)
	f.Compare(t.turns.options.Embeddings.OfMessage(t.ctx, f))
	f.Plan()
	return f
}

// warn logs a fault that does not end the turn, unless the turn was stopped.
func (t *Turn) warn(message string, err error) {
	if t.ctx.Err() == nil {
		t.turns.options.Log.Warn(message, "session", t.begun.Key.SessionID, "message", t.begun.Key.ReplyID, "error", err)
	}
}

// readTexts reads the texts of the older messages that the prompt sends.
func (t *Turn) readTexts(f *prompt.Fit) error {
	sent := f.Sent()
	if len(f.Missing(sent)) == 0 { // as in most turns: the history has all texts
		return nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, readTimeout)
	defer cancel()
	return background.ReadTexts(ctx, t.turns.options.Store, t.begun.Key.Owner, f, sent)
}

// endedBy returns the final reply for the model's outcome, with its usage.
func (t *Turn) endedBy(outcome stream.Outcome) conversation.Message {
	m := t.begun.Reply
	m.Content, m.Status, m.Context = t.reply.Join(), outcome.State, &t.report
	m.FinishReason = outcome.Result.FinishReason
	if outcome.Err != nil {
		m.Error = &conversation.ReplyError{Code: outcome.Err.Code, Message: outcome.Err.Message}
	}
	m.Tokens = t.turns.options.Count(m.Content)
	m.Usage = t.usage(outcome, m.Tokens)
	if t.begun.Session.Context.RetentionPolicy == conversation.Semantic {
		m.Terms = window.TermsOf(t.begun.Message.Content, m.Content)
	}
	return m
}

// usage returns the usage of the call to the model: the provider's figures, or an estimate if the provider gave none.
func (t *Turn) usage(outcome stream.Outcome, text int) *conversation.Usage {
	if u := outcome.Result.Usage; u != nil {
		return &conversation.Usage{Prompt: u.Prompt, Completion: u.Completion, Reasoning: u.Reasoning, Total: u.Prompt + u.Completion}
	}
	u := conversation.Usage{Completion: text, Prompt: t.report.PromptTokens, Estimated: true}
	if outcome.State == stream.Failed && text == 0 && outcome.Err.Code != stream.CodeEmptyReply {
		u.Prompt = 0 // the model did not accept the prompt
	}
	u.Total = u.Prompt + u.Completion
	return &u
}

// timing returns two durations since the beginning of the turn: until the first text of the reply, and until now.
func (t *Turn) timing(outcome stream.Outcome) conversation.Timing {
	timing := conversation.Timing{Duration: max(1, time.Since(t.since))} // 0 would mean unknown
	if !outcome.FirstTokenAt.IsZero() {
		timing.FirstToken = max(1, outcome.FirstTokenAt.Sub(t.since))
	}
	return timing
}

// show shows the ending to viewers and releases the callers that wait for it. If the turn was abandoned, viewers see no
// ending before their connections are closed.
func (t *Turn) show(outcome stream.Outcome) {
	ending := stream.Ending{State: outcome.State} // if the session is gone, viewers see the end of the session instead
	if t.decision == stored || t.decision == lost {
		ending = t.final.Ending()
	}
	if t.wasCleared() && t.final.Status == stream.Cancelled {
		ending.Message = nil // viewers see the clear instead
	}
	if t.decision != abandoned {
		t.reply.End(ending)
		t.topic.ScheduleTrim()
	}
	t.turns.live.remove(t)
	t.slot.Release()
	close(t.done)
}

// workAfterReply starts the embedding job and the summary job, unless the reply failed or is no longer in the history.
func (t *Turn) workAfterReply() {
	if t.decision != stored || t.final.Error != nil || t.wasCleared() {
		return
	}
	o, owner := &t.turns.options, t.begun.Key.Owner
	o.Embeddings.AfterReply(owner, t.fitted, &t.begun.Message, &t.final)
	t.fitted.Add(&t.begun.Message, &t.final)
	o.Summaries.AfterReply(owner, t.fitted)
}

func (t *Turn) wasCleared() bool {
	return errors.Is(context.Cause(t.ctx), conversation.ErrHistoryCleared)
}

// Key returns the turn's key.
func (t *Turn) Key() conversation.TurnKey { return t.begun.Key }

// MessageID returns the id of the message that the turn replies to.
func (t *Turn) MessageID() string { return t.begun.Message.ID }

// Stop tells the turn to stop, and does not wait. The first cause decides how the reply ends; later causes are ignored.
func (t *Turn) Stop(cause error) { t.cancel(cause) }

// Over reports whether the turn has ended and viewers see the ending.
func (t *Turn) Over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}
