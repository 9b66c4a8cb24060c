package stream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Model generates replies. Its methods may be called from any goroutine.
type Model interface {
	// Name returns the provider's name of the model.
	Name() string
	// Generate requests one reply. It calls write with each piece of text as it arrives, in order, from the calling
	// goroutine. write does not keep the slice. An empty write means that the model is alive but has no text yet.
	//
	// It returns nil only if the model said that the reply is complete. Otherwise the error is a [*ModelError], or
	// ctx.Err() if ctx ended. When Generate returns, the request to the model is closed and write is not called again.
	// The Result holds whatever is known, also with an error.
	Generate(ctx context.Context, request Request, write func(delta []byte)) (Result, error)
}

// Request is the input of a model: a prompt and a limit.
type Request struct {
	Messages []PromptMessage
	// MaxTokens limits the reply, in tokens; 0 leaves the length to the model.
	MaxTokens int
	// Summary means that the messages request a summary. A simulated model, which cannot read the request, needs this.
	Summary bool
}

// PromptMessage is one message of a prompt.
type PromptMessage struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// Result is the model's data about a reply, besides its text.
type Result struct {
	FinishReason string // the provider's word: "stop", "length", …
	Usage        *Usage // nil if the provider gave no usage
}

// Usage is the cost of a reply in tokens, as counted by the provider.
type Usage struct {
	Prompt, Completion int
}

// The public error codes of a failed reply.
const (
	CodeProviderError   = "provider_error"
	CodeProviderTimeout = "provider_timeout"
)

// ModelError means that a model failed. Message is public, and Cause is for the log. Neither quotes the provider, whose
// texts may contain prompts or keys.
type ModelError struct {
	Code    string // CodeProviderError or CodeProviderTimeout
	Message string
	Cause   error
}

func (e *ModelError) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Cause)
}

func (e *ModelError) Unwrap() error { return e.Cause }

// Cancel the context of a reply with one of these causes, which decides the state in which the reply ends. Any other
// cause interrupts it.
var (
	ErrCancelled   = errors.New("reply cancelled")
	ErrInterrupted = errors.New("reply interrupted")

	errStalled = errors.New("the model was silent for too long")
)

// Timeouts are the longest silences that a model may make. Every byte counts, also a keep-alive.
type Timeouts struct {
	FirstByte time.Duration // before the first byte; 120 s by default: a local model may first load
	Stall     time.Duration // between two bytes; 60 s by default: twice llama-server's keep-alive interval
}

// Outcome describes how a reply ended.
type Outcome struct {
	State        State
	Result       Result
	Err          *ModelError // set only if State is Failed
	FirstTokenAt time.Time   // the time at which the first text arrived; zero if none did
}

// Pump runs the model, appends its text to the reply, and returns the outcome. It does not end the reply: the caller
// does, once the ending is durable. To stop the model, cancel ctx with ErrCancelled or ErrInterrupted. When Pump returns,
// the request to the model is closed.
func Pump(ctx context.Context, model Model, request Request, reply *Reply, timeouts Timeouts) Outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(timeouts.FirstByte, func() { cancel(errStalled) })
	defer silence.Stop()
	var first time.Time
	result, err := generate(ctx, model, request, func(delta []byte) {
		if first.IsZero() && len(delta) > 0 {
			first = time.Now()
		}
		silence.Reset(timeouts.Stall)
		reply.Append(delta)
	})
	reply.Flush()
	state, failure := endState(err, context.Cause(ctx))
	return Outcome{State: state, Result: result, Err: failure, FirstTokenAt: first}
}

// generate runs the model and returns a panic of its adapter as an error, so that one reply cannot take down all others.
func generate(ctx context.Context, model Model, request Request, write func([]byte)) (result Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the model's adapter panicked: %v", r)
		}
	}()
	return model.Generate(ctx, request, write)
}

// endState derives the state of a reply from the model's error, and from the cause that cancelled its context, if any.
func endState(err, cause error) (State, *ModelError) {
	switch {
	case err == nil:
		return Completed, nil
	case errors.Is(cause, errStalled):
		return Failed, &ModelError{Code: CodeProviderTimeout, Message: "the model stopped answering", Cause: cause}
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
