package stream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Model generates replies. The methods of a Model may be called from any goroutine.
type Model interface {
	// Name returns the provider's name for the model.
	Name() string
	// Generate requests one reply. It calls write for each piece of text that arrives, in order, from the calling
	// goroutine. write does not keep the slice. An empty slice means that the model is alive but has sent no new text.
	//
	// The error is nil only if the model has reported the end of the reply. Otherwise the error is a [*ModelError], or
	// ctx.Err() if ctx ended. When Generate returns, it has closed the request to the model and does not call write again.
	// Even with an error, the Result holds the data that arrived.
	Generate(ctx context.Context, request Request, write func(delta []byte)) (Result, error)
}

// Request is the input of a model: a prompt, limits and parameters.
type Request struct {
	Messages []PromptMessage
	// MaxTokens limits the reply, in tokens; 0 leaves the length to the model.
	MaxTokens int
	// MaxBytes limits the text of the reply, in bytes; 0 means no limit. A model need not obey either limit. [Pump] cuts
	// the text off at MaxBytes.
	MaxBytes int
	// Temperature, TopP, Stop, Seed and ReasoningEffort are parameters as providers name them. A nil or empty parameter is not
	// sent. A model may ignore them.
	Temperature, TopP *float64
	Stop              []string
	Seed              *int64
	ReasoningEffort   string
	// Summary means that the messages request a summary. Only a simulated model uses Summary, because it cannot understand
	// the messages.
	Summary bool
	// Reasoning is called when the model sends a part of its reasoning, which is not text of the reply; nil for none. [Pump]
	// sets Reasoning.
	Reasoning func()
}

// PromptMessage is one message of a prompt.
type PromptMessage struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// Result holds the model's data about a reply, without the text.
type Result struct {
	FinishReason string // as the provider names it: "stop", "length", …; "" if unknown
	Usage        *Usage // nil if the provider gave no usage
	CalledTool   bool   // the model has called a tool
	Reasoned     bool   // the model has sent reasoning, in the text or apart from it
	// ReasonedApart means that the provider sent reasoning apart from the text. This tells that the model reasons. Reasoning in the
	// text does not: a user can ask any model to write it.
	ReasonedApart bool
}

// Usage is the cost of a reply in tokens, as counted by the provider. Reasoning is the part of Completion that the model spent on
// reasoning, which is not text of the reply; 0 if the provider gave no figure.
type Usage struct {
	Prompt, Completion, Reasoning int
}

// The public error codes of a failed reply.
const (
	CodeProviderError   = "provider_error"
	CodeProviderTimeout = "provider_timeout"
	CodeEmptyReply      = "empty_reply"
)

// CodeContextTooLong is the code of an error that no client sees: the provider refused the request, because its context cannot
// hold the prompt and the reply. The caller can try again with a shorter prompt.
const CodeContextTooLong = "context_too_long"

// ModelError means that a model failed. Message is public, and Cause is for the log. Message and Cause must not quote the
// provider's error, because its text may contain prompts or keys.
type ModelError struct {
	Code    string // one of the codes above
	Message string
	Cause   error
	// PromptTokens and ContextTokens are set only if Code is CodeContextTooLong: the sizes of the prompt and of the model's
	// context, in the provider's tokens; 0 if the provider did not say.
	PromptTokens, ContextTokens int
}

func (e *ModelError) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Cause)
}

func (e *ModelError) Unwrap() error { return e.Cause }

// A caller of [Pump] stops the model with one of these causes: it cancels ctx with the cause. ErrCancelled leads to the
// state Cancelled. ErrInterrupted, and any other cause, leads to the state Interrupted.
var (
	ErrCancelled   = errors.New("reply cancelled")
	ErrInterrupted = errors.New("reply interrupted")

	// ErrFull is the cause with which Pump itself cancels the context when the text exceeds [Request.MaxBytes]. It
	// leads to the state Completed.
	ErrFull = errors.New("the reply has reached its limit in bytes")

	// errStalled is the cause with which Pump itself cancels the context after a timeout. It leads to the state Failed.
	errStalled = errors.New("the model was silent for too long")
)

// FinishLength is the finish reason of a reply that has reached a limit, the provider's limit or [Request.MaxBytes].
const FinishLength = "length"

// textTimeout is the time without text after which a reply fails, even if the model sends signs of life. Such a model would
// otherwise occupy its session until the session expires. Models that reason before they write take up to half an hour.
const textTimeout = time.Hour

// Timeouts limit the silence of a model. Each call of write ends a silence, even a call without text.
type Timeouts struct {
	FirstByte time.Duration // until the first write; 120 s by default, because a local server may have to load the model
	Stall     time.Duration // between two writes; 60 s by default: twice llama-server's keep-alive interval
}

// Outcome is the result of [Pump]: the final state of the reply, and data about the call of the model.
type Outcome struct {
	State        State
	Result       Result
	Err          *ModelError // set only if State is Failed
	FirstTokenAt time.Time   // the time at which the first text arrived; zero if no text arrived
}

// Pump runs the model, appends the model's text to the reply, and returns the outcome. Pump does not end the reply: the
// caller first stores the ending, then calls [Reply.End]. To stop the model, cancel ctx with ErrCancelled or
// ErrInterrupted. If the text exceeds request.MaxBytes, Pump cuts the text off at the end of a character, and closes
// the request. The reply is then Completed, with the finish reason "length". If the model ends the reply without text, the
// outcome is Failed with CodeEmptyReply. When Pump returns, the request to the model is closed. If the reply still has no
// text then, the caller may call Pump again.
func Pump(ctx context.Context, model Model, request Request, reply *Reply, timeouts Timeouts) Outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(timeouts.FirstByte, func() { cancel(errStalled) })
	defer silence.Stop()
	reply.limit = request.MaxBytes
	request.Reasoning = reply.reasons
	var first time.Time
	var signs signsOfLife
	result, err := generate(ctx, model, request, func(delta []byte) {
		if first.IsZero() && len(delta) > 0 {
			first = time.Now()
		}
		silence.Reset(timeouts.Stall)
		reply.Append(delta)
		switch {
		case reply.full:
			cancel(ErrFull)
		case len(delta) == 0 && signs.tooLong(reply.text.size):
			cancel(errStalled)
		}
	})
	reply.Flush()
	state, failure := endState(err, context.Cause(ctx))
	if reply.full && state == Completed {
		result.FinishReason = FinishLength
	}
	if state == Completed && reply.text.size == 0 {
		state, failure = Failed, &ModelError{Code: CodeEmptyReply, Message: whyEmpty(result)}
	}
	return Outcome{State: state, Result: result, Err: failure, FirstTokenAt: first}
}

// whyEmpty returns the public reason why a model wrote no text.
func whyEmpty(r Result) string {
	switch {
	case r.CalledTool:
		return "the model called a tool instead of writing a reply, but this server has no tools"
	case r.Reasoned && r.FinishReason == FinishLength:
		return "the model reached its limit of tokens before its reasoning had ended"
	case r.Reasoned:
		return "the model ended its reasoning without writing a reply"
	case r.FinishReason == FinishLength:
		return "the model reached its limit of tokens before it wrote a reply"
	}
	return "the model wrote no reply"
}

// signsOfLife measures the time for which a model has sent signs of life without text.
type signsOfLife struct {
	since time.Time // the first sign of life after the newest text; zero before the first sign
	size  int       // the size of the text at that time
}

// tooLong reports whether the text has had this size for longer than textTimeout. Pump calls tooLong only at signs of
// life without text, so that a token costs nothing.
func (s *signsOfLife) tooLong(size int) bool {
	now := time.Now()
	if s.since.IsZero() || size != s.size {
		s.since, s.size = now, size
	}
	return now.Sub(s.since) > textTimeout
}

// generate runs the model. If the model's adapter panics, generate returns an error. Otherwise the panic would end the
// process and all other replies.
func generate(ctx context.Context, model Model, request Request, write func([]byte)) (result Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the model's adapter panicked: %v", r)
		}
	}()
	return model.Generate(ctx, request, write)
}

// endState derives the final state of a reply from the model's error and from the cause that cancelled the context. cause
// is nil if the context was not cancelled.
func endState(err, cause error) (State, *ModelError) {
	switch {
	case err == nil:
		return Completed, nil
	case errors.Is(cause, errStalled):
		return Failed, &ModelError{Code: CodeProviderTimeout, Message: "the model stopped answering", Cause: cause}
	case errors.Is(cause, ErrFull):
		return Completed, nil
	case errors.Is(cause, ErrCancelled):
		return Cancelled, nil
	case cause != nil:
		return Interrupted, nil
	}
	if failure, ok := errors.AsType[*ModelError](err); ok {
		return Failed, failure
	}
	return Failed, &ModelError{Code: CodeProviderError, Message: "the model failed", Cause: err}
}
