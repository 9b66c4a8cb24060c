package turn

import (
	"cmp"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
	"parley/stream"
)

// maxRefits is the maximum number of times that a turn plans a shorter prompt because the provider refused the prompt as too long. The
// first refusal usually has the sizes, so that the second request fits.
const maxRefits = 2

// limit returns what is known about the model's context.
func (t *Turn) limit() prompt.Limit {
	model := t.model()
	limit := prompt.LimitOf(model)
	_, limit.Reasons = t.turns.reasoning.Load(model.Name())
	return limit
}

func (t *Turn) model() stream.Model { return modelOf(t.turns.options.Models, &t.begun.Session) }

// write calls the model and appends its text to the reply. If the provider refuses the prompt as too long, write plans a shorter prompt
// and calls the model again.
func (t *Turn) write() (outcome stream.Outcome) {
	for refits := 0; t.fitted.Result.Overflow == 0; refits++ {
		outcome = t.call()
		if !prompt.TooLong(outcome) {
			break
		}
		if refits == maxRefits {
			outcome = overflow(outcome)
			break
		}
		if !t.awaitStart() { // a shorter prompt may need the store, and viewers see what is left out
			return outcome
		}
		t.fit(t.fitted, t.fitted.Limit().Refused(t.fitted, outcome.Err))
	}
	if t.fitted.Result.Overflow > 0 {
		outcome = overflow(outcome)
	}
	if outcome.Err != nil {
		t.turns.options.Log.Warn("a reply failed", "session", t.begun.Key.SessionID, "message", t.begun.Key.ReplyID, "error", outcome.Err)
	}
	return outcome
}

// call calls the model once with the planned prompt.
func (t *Turn) call() stream.Outcome {
	o, model := &t.turns.options, t.model()
	request := t.fitted.Request()
	room := t.fitted.TextRoom()
	request.MaxBytes = window.ReplyBytes(cmp.Or(room, request.MaxTokens), o.MaxBytes)
	outcome := stream.Pump(t.ctx, boundedTo(room, model, o.Count), request, t.reply, o.Timeouts)
	prompt.Observe(model, t.begun.Key.Owner.Account, t.report.PromptTokens, outcome)
	if u := outcome.Result.Usage; outcome.Result.ReasonedApart || u != nil && u.Reasoning > 0 {
		t.turns.reasoning.Store(model.Name(), true)
	}
	return outcome
}

// overflow returns the outcome of a turn whose prompt does not fit the model's context. refused is the outcome of the last call; its
// error, if any, becomes the cause.
func overflow(refused stream.Outcome) stream.Outcome {
	err := &stream.ModelError{Code: conversation.CodeContextOverflow, Message: "the conversation does not fit the model's context window"}
	if refused.Err != nil {
		err.Cause = refused.Err
	}
	return stream.Outcome{State: stream.Failed, Err: err}
}
