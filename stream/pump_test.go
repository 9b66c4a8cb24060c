package stream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// scriptedModel is a model. Its Generate runs a function of the test.
type scriptedModel func(ctx context.Context, write func([]byte)) (Result, error)

func (scriptedModel) Name() string { return "scriptedModel" }
func (s scriptedModel) Generate(ctx context.Context, _ Request, write func([]byte)) (Result, error) {
	return s(ctx, write)
}

func TestPump_EachModel_EndsInExpectedState(t *testing.T) {
	wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, test := range map[string]struct {
		model scriptedModel
		cause error  // the test cancels the context with this cause after 10 s; nil: it does not cancel
		want  State  // the state in the outcome
		code  string // the code of the outcome's error
		text  string // the text of the reply
	}{
		"end of the reply: completed": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				write([]byte("hello"))
				return Result{FinishReason: "stop"}, nil
			}, want: Completed, text: "hello",
		},
		"broken connection: failed": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel"))
				return Result{}, &ModelError{Code: CodeProviderError, Message: "the answer broke off"}
			}, want: Failed, code: CodeProviderError, text: "hel",
		},
		"error that is not a ModelError: failed": {
			model: func(context.Context, func([]byte)) (Result, error) { return Result{}, fmt.Errorf("unexpected") },
			want:  Failed, code: CodeProviderError,
		},
		"panic of the adapter: failed": {
			model: func(context.Context, func([]byte)) (Result, error) { panic("unexpected") },
			want:  Failed, code: CodeProviderError,
		},
		"no text: failed": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				write(nil)
				return Result{FinishReason: "stop"}, nil
			}, want: Failed, code: CodeEmptyReply,
		},
		"no first byte: timeout": {
			model: func(ctx context.Context, _ func([]byte)) (Result, error) { return Result{}, wait(ctx) },
			want:  Failed, code: CodeProviderTimeout,
		},
		"silence after the first byte: timeout": {
			model: func(ctx context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel"))
				return Result{}, wait(ctx)
			}, want: Failed, code: CodeProviderTimeout, text: "hel",
		},
		"a sign of life every 50 s: completed": {
			model: func(_ context.Context, write func([]byte)) (Result, error) {
				for range 10 {
					time.Sleep(50 * time.Second)
					write(nil)
				}
				write([]byte("late"))
				return Result{}, nil
			}, want: Completed, text: "late",
		},
		"context cancelled with ErrCancelled: cancelled": {
			model: func(ctx context.Context, write func([]byte)) (Result, error) {
				write([]byte("hel"))
				return Result{}, wait(ctx)
			}, cause: ErrCancelled, want: Cancelled, text: "hel",
		},
		"context cancelled with ErrInterrupted: interrupted": {
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
				if got.State != test.want || code != test.code || text != test.text || ending != nil {
					t.Fatalf("got %s %q %q, want %s %q %q; ending %v, want none",
						got.State, code, text, test.want, test.code, test.text, ending)
				}
			})
		})
	}
}

func TestPump_NoText_MessageSaysWhy(t *testing.T) {
	for want, result := range map[string]Result{
		"the model wrote no reply":                                                         {FinishReason: "stop"},
		"the model reached its limit of tokens before it wrote a reply":                    {FinishReason: "length"},
		"the model reached its limit of tokens before its reasoning had ended":             {FinishReason: "length", Reasoned: true},
		"the model ended its reasoning without writing a reply":                            {FinishReason: "stop", Reasoned: true},
		"the model called a tool instead of writing a reply, but this server has no tools": {FinishReason: "tool_calls", CalledTool: true, Reasoned: true},
	} {
		model := scriptedModel(func(context.Context, func([]byte)) (Result, error) { return result, nil })
		outcome := Pump(t.Context(), model, Request{}, NewReply("msg_1"), Timeouts{FirstByte: time.Minute, Stall: time.Minute})
		if outcome.State != Failed || outcome.Err.Message != want || outcome.Result != result {
			t.Errorf("%+v: the outcome is %+v, %v; want %q", result, outcome, outcome.Err, want)
		}
	}
}
