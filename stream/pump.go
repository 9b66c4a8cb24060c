package stream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Model makes replies. Its methods may be called from any goroutine.
type Model interface {
	// Name is what the model is called by its provider.
	Name() string
	// Generate asks for one reply and passes its text to write as it arrives, in order, from the calling goroutine;
	// write does not keep the slice. An empty write says that the model is alive but has no text yet.
	//
	// It returns nil only if the model said that the reply is whole. Otherwise the error is a [*ModelError], or
	// ctx's own where ctx ended. When it returns, the request to the model is closed and write is not called again.
	// The Result holds whatever is known, also beside an error.
	Generate(ctx context.Context, request Request, write func(delta []byte)) (Result, error)
}

// Request is what a model is asked.
type Request struct {
	Messages []PromptMessage
	// MaxTokens bounds the reply; 0 leaves it to the model.
	MaxTokens int
	// Summary says that the reply is to be a summary, as the messages ask for it. It is for models that cannot read.
	Summary bool
}

// Prompt is one message of a Request.
type PromptMessage struct {
	Role    string // "system", "user" or "assistant"
	Content string
}

// Result is what a model said of a reply beside its text.
type Result struct {
	FinishReason string // the provider's word: "stop", "length", …
	Usage        *Usage // nil if the provider gave none
}

// Usage is what a reply cost, in tokens, by the provider's own count.
type Usage struct {
	Prompt, Completion int
}

// The public codes of a reply that failed (design section 2).
const (
	CodeProviderError   = "provider_error"
	CodeProviderTimeout = "provider_timeout"
)

// ModelError says why a model failed. Message is for the public and never quotes the provider; Cause is for the log,
// and does not either.
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

// Why a reply's context is cancelled; the cause decides how the reply ends. Any other cause interrupts it.
var (
	ErrCancelled   = errors.New("reply cancelled")
	ErrInterrupted = errors.New("reply interrupted")

	errSilent = errors.New("silent for too long")
)

// Timeouts says how long a model may be silent.
type Timeouts struct {
	FirstByte time.Duration // before the first byte; by default 120 s
	Stall     time.Duration // between any two after it; by default 60 s
}

// Outcome is how a reply ended.
type Outcome struct {
	State        State
	Result       Result
	Err          *ModelError // set if State is Failed
	FirstTokenAt time.Time   // when the first text came; zero if none did
}

// Pump has the model generate into the reply until it is over, and says how it ended: in exactly one state, whatever
// the model does. It does not end the reply: that waits until the ending is durable. Cancel ctx with ErrCancelled or
// ErrInterrupted to stop it; when Pump returns, the request to the model is closed.
func Pump(ctx context.Context, model Model, request Request, reply *Reply, patience Timeouts) Outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(patience.FirstByte, func() { cancel(errSilent) })
	defer silence.Stop()
	var first time.Time
	result, err := generate(ctx, model, request, func(delta []byte) {
		if first.IsZero() && len(delta) > 0 {
			first = time.Now()
		}
		silence.Reset(patience.Stall)
		reply.Append(delta)
	})
	reply.Flush()
	state, failure := judge(err, context.Cause(ctx))
	return Outcome{State: state, Result: result, Err: failure, FirstTokenAt: first}
}

// generate turns a model's panic into its error: one reply must not take the others with it.
func generate(ctx context.Context, model Model, request Request, write func([]byte)) (result Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the model's adapter panicked: %v", r)
		}
	}()
	return model.Generate(ctx, request, write)
}

// judge tells how a reply ended by what its model returned and why its context was cancelled, if it was.
func judge(err, cause error) (State, *ModelError) {
	switch {
	case err == nil:
		return Completed, nil
	case errors.Is(cause, errSilent):
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
