package openai

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"parley/stream"
)

// The limits of retries: the number of requests for one reply, and the delays between these requests.
const (
	maxAttempts = 4
	firstDelay  = 500 * time.Millisecond
	maxDelay    = 8 * time.Second
	jitter      = 0.25 // each delay is up to a quarter shorter or longer, so that callers do not all retry at the same time

	// maxRetryAfter is the longest delay that a provider may request. If a provider requests a longer delay, Generate fails
	// at once: the provider would refuse an earlier retry, and callers do not wait that long.
	maxRetryAfter = 30 * time.Second
)

func newRetry() retrypolicy.RetryPolicy[any] {
	return retrypolicy.NewBuilder[any]().
		HandleIf(func(_ any, err error) bool { return mayRetry(err) }).
		WithMaxAttempts(maxAttempts).
		WithBackoff(firstDelay, maxDelay).
		WithJitterFactor(jitter).
		WithDelayFunc(requestedDelay).
		ReturnLastFailure().
		Build()
}

// Generate requests one reply (see [stream.Model]). It retries up to three times if the server refused or broke the
// connection, or responded with 408, 429 or 5xx. It does not retry after the first text of the reply.
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (result stream.Result, err error) {
	body := m.body(request)
	if result, err = m.attempt(ctx, body, request.Reasoning, write); mayRetry(err) {
		first := true
		_ = failsafe.With(m.retry).WithContext(ctx).Run(func() error {
			if first { // this attempt has failed already; the library counts it and waits
				first = false
				return err
			}
			result, err = m.attempt(ctx, body, request.Reasoning, write)
			return err
		}) // ignore the result of Run: if ctx has ended, Run returns ctx.Err(), even if the reply is complete
	}
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	return result, err
}

// mayRetry reports whether a retry may succeed. It returns false for every error after the first text of the reply.
func mayRetry(err error) bool {
	c, ok := errors.AsType[*cause](err)
	return ok && c.retry
}

// requestedDelay returns the delay that the provider requested, or -1 if it requested none. The jitter may shorten a delay
// by a quarter, so requestedDelay returns a longer delay: a retry must not come earlier than requested.
func requestedDelay(exec failsafe.ExecutionAttempt[any]) time.Duration {
	c, ok := errors.AsType[*cause](exec.LastError())
	if !ok || c.after <= 0 {
		return -1
	}
	return time.Duration(float64(c.after) / (1 - jitter))
}
