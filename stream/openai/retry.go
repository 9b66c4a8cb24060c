package openai

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"parley/stream"
)

// The number of requests to a model that cannot respond now, and the delays between them.
const (
	maxAttempts = 4
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 8 * time.Second
	jitter      = 0.25 // each delay is up to a quarter shorter or longer, so that not all callers retry at once

	// maxRetryAfter is the longest delay that a provider may request. If it requests more, we fail at once: it would
	// refuse an earlier retry, and no caller waits that long.
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

// Generate requests one reply (see [stream.Model]). It retries up to three times if the server refused or broke the
// connection, or responded with 408, 429 or 5xx. Once text of the reply was passed on, it does not retry.
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (result stream.Result, err error) {
	translated := m.chatRequest(request)
	_ = failsafe.With(m.retry).WithContext(ctx).Run(func() error {
		result, err = m.attempt(ctx, translated, write)
		return err
	}) // Run returns ctx's error even if the reply was complete when ctx ended
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, err
}

// mayRetry reports whether a retry may help and no text was passed on.
func mayRetry(err error) bool {
	c, ok := errors.AsType[*cause](err)
	return ok && c.retry
}

// askedDelay returns the delay that the provider requested, or -1 if none. It makes the delay longer, because the
// policy's jitter may shorten it, and we must not retry earlier than requested.
func askedDelay(exec failsafe.ExecutionAttempt[any]) time.Duration {
	c, ok := errors.AsType[*cause](exec.LastError())
	if !ok || c.after <= 0 {
		return -1
	}
	return time.Duration(float64(c.after) / (1 - jitter))
}
