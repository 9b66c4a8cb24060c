package openai

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"parley/stream"
)

// How often a model is asked that cannot answer now, and how far apart.
const (
	maxAttempts = 4
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 8 * time.Second
	jitter      = 0.25 // a delay is up to a quarter shorter or longer, so that callers do not return all at once

	// maxRetryAfter is the longest wait that a provider may ask for. If it asks for more, we fail at once: asking
	// earlier would be refused, and no caller waits that long.
	maxRetryAfter = 30 * time.Second
)

func newRetry() retrypolicy.RetryPolicy[any] {
	return retrypolicy.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool { return mayRetry(err) }).
		WithMaxAttempts(maxAttempts).
		WithBackoff(firstDelay, maxDelay).
		WithJitterFactor(jitter).
		WithDelayFunc(askedDelay).
		ReturnLastFailure().
		Build()
}

// Generate asks for one reply (see [stream.Model]). It asks again, up to three times, if the server refused or broke
// the connection or answered 408, 429 or 5xx, as long as no text of the reply was passed on.
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (result stream.Result, err error) {
	translated := m.chatRequest(request)
	_ = failsafe.With(m.retry).WithContext(ctx).Run(func() error {
		result, err = m.attempt(ctx, translated, write)
		return err
	}) // its result is ctx's error even if a reply was complete just as ctx ended
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, err
}

// mayRetry reports whether asking again may help and no text was passed on.
func mayRetry(err error) bool {
	c, ok := errors.AsType[*cause](err)
	return ok && c.retry
}

// askedDelay returns the wait that the provider asked for, or -1. The policy's jitter may shorten it, so it is made
// longer: the wait must never be shorter than asked.
func askedDelay(exec failsafe.ExecutionAttempt[any]) time.Duration {
	c, ok := errors.AsType[*cause](exec.LastError())
	if !ok || c.after <= 0 {
		return -1
	}
	return time.Duration(float64(c.after) / (1 - jitter))
}
