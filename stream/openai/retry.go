package openai

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"parley/stream"
)

// How often, and how far apart, a model is asked that cannot answer just now (design section 3).
const (
	maxAttempts = 4
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 8 * time.Second
	jitter      = 0.25 // a delay is up to a quarter shorter or longer, so that a crowd does not come back at once

	// maxRetryAfter is the longest wait that a provider may ask for. If it asks for a longer one we fail at once:
	// asking earlier would be refused, and nobody waits that long.
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

// Generate asks for one reply (see [stream.Model]). It asks again, a few times, where the model's server refused the
// connection, broke it, or answered 408, 429 or 5xx, as long as no text of the reply was passed on.
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (result stream.Result, err error) {
	asked := m.translate(request)
	_ = failsafe.With(m.retry).WithContext(ctx).Run(func() error {
		result, err = m.attempt(ctx, asked, write)
		return err
	}) // its own result is no use: it is ctx's error where a reply was whole just as ctx ended
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, err
}

// mayRetry says whether asking again may help, and nothing has been said yet.
func mayRetry(err error) bool {
	c, ok := errors.AsType[*cause](err)
	return ok && c.retry
}

// askedDelay is the wait that the provider asked for, or -1. The policy's jitter may shorten what it is given, so it is
// given enough more that the wait is never shorter than asked.
func askedDelay(exec failsafe.ExecutionAttempt[any]) time.Duration {
	c, ok := errors.AsType[*cause](exec.LastError())
	if !ok || c.after <= 0 {
		return -1
	}
	return time.Duration(float64(c.after) / (1 - jitter))
}
