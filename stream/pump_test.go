package stream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// scriptedModel is a model that runs a function of the test.
type scriptedModel func(ctx context.Context, write func([]byte)) (Result, error)

func (scriptedModel) Name() string { return "scriptedModel" }
func (s scriptedModel) Generate(ctx context.Context, _ Request, write func([]byte)) (Result, error) {
	return s(ctx, write)
}

func TestPump_EndState(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, test := range map[string]struct {
		model scriptedModel
		cause error // cancels the context after 10 s; nil for none
		want  State
		code  string
		text  string
	}{
		"complete reply": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				write([]byte("hello"))
				return Result{FinishReason: "stop"}, nil
			}, want: Completed, text: "hello",
		},
		"broken connection": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel"))
				return Result{}, &ModelError{Code: CodeProviderError, Message: "the answer broke off"}
			}, want: Failed, code: CodeProviderError, text: "hel",
		},
		"another type of error": {
			model: func(context.Context, func([]byte)) (Result, error) { return Result{}, fmt.Errorf("odd") },
			want:  Failed, code: CodeProviderError,
		},
		"panic of the adapter": {
			model: func(context.Context, func([]byte)) (Result, error) { panic("odd") },
			want:  Failed, code: CodeProviderError,
		},
		"no first byte": {
			model: func(ctx context.Context, _ func([]byte)) (Result, error) { return Result{}, wait(ctx) },
			want:  Failed, code: CodeProviderTimeout,
		},
		"stall after the first byte": {
			model: func(ctx context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel"))
				return Result{}, wait(ctx)
			}, want: Failed, code: CodeProviderTimeout, text: "hel",
		},
		"slow but alive": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				for range 10 {
					time.Sleep(50 * time.Second)
					write(nil)
				}
				write([]byte("late"))
				return Result{}, nil
			}, want: Completed, text: "late",
		},
		"cancelled": {
			model: func(ctx context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel"))
				return Result{}, wait(ctx)
			}, cause: ErrCancelled, want: Cancelled, text: "hel",
		},
		"interrupted": {
			model: func(ctx context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel\xf0\x9f"))
				return Result{}, wait(ctx)
			}, cause: ErrInterrupted, want: Interrupted, text: "hel\uFFFD",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				if test.cause != nil {
					time.AfterFunc(10*time.Second, func() { cancel(test.cause) })
				}
				r := NewReply("r")
				got := Pump(ctx, test.model, Request{}, r, Timeouts{FirstByte: 120 * time.Second, Stall: 60 * time.Second})
				code := ""
				if got.Err != nil {
					code = got.Err.Code
				}
				text, ending := r.Snapshot()
				if got.State != test.want || code != test.code || string(text) != test.text || ending != nil {
					t.Fatalf("got %s %q %q, ending %v", got.State, code, text, ending)
				}
			})
		})
	}
}
