package stream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPump_ModelIgnoresLimit_TextCutAndRequestClosed runs models with a limit of 10 bytes of text.
func TestPump_ModelIgnoresLimit_TextCutAndRequestClosed(t *testing.T) {
	usage := Result{FinishReason: "stop", Usage: &Usage{Prompt: 1, Completion: 2}}
	endless := func(piece string) scriptedModel {
		return func(ctx context.Context, write func([]byte)) (Result, error) {
			for ctx.Err() == nil {
				write([]byte(piece))
			}
			write([]byte("x")) // fits the bytes that are left, but must not follow the text that was cut off
			return usage, ctx.Err()
		}
	}
	for name, test := range map[string]struct {
		model        scriptedModel
		text, finish string
		cause        error
	}{
		"endless text: cut at the limit":                  {endless("abc"), "abcabcabca", FinishLength, ErrFull},
		"endless wide characters: cut before a character": {endless("äöü€"), "äöü€", FinishLength, ErrFull},
		"one large delta: cut": {func(ctx context.Context, write func([]byte)) (Result, error) {
			write([]byte(strings.Repeat("é", 1000)))
			return Result{}, ctx.Err()
		}, "ééééé", FinishLength, ErrFull},
		"model ends at the limit: not cut": {func(_ context.Context, write func([]byte)) (Result, error) {
			write([]byte("0123456789"))
			return usage, nil
		}, "0123456789", "stop", nil},
		"model ends with too much text: cut": {func(_ context.Context, write func([]byte)) (Result, error) {
			write([]byte("0123456789a"))
			return usage, nil
		}, "0123456789", FinishLength, ErrFull},
		"incomplete character at the limit: cut": {func(_ context.Context, write func([]byte)) (Result, error) {
			write([]byte("012345678\xf0\x9f"))
			return usage, nil
		}, "012345678", FinishLength, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var cause error
			model := scriptedModel(func(ctx context.Context, write func([]byte)) (Result, error) {
				result, err := test.model(ctx, write)
				cause = context.Cause(ctx)
				return result, err
			})
			r := NewReply("r")
			got := Pump(t.Context(), model, Request{MaxBytes: 10}, r, Timeouts{FirstByte: time.Minute, Stall: time.Minute})
			text, _ := r.Snapshot()
			if got.State != Completed || got.Err != nil || text != test.text || got.Result.FinishReason != test.finish || cause != test.cause {
				t.Errorf("got %s %q, finish reason %q, the request cancelled for %v; want completed %q, %q, %v",
					got.State, text, got.Result.FinishReason, cause, test.text, test.finish, test.cause)
			}
		})
	}
}

// TestPump_OnlySignsOfLife_FailsAfterAnHour runs a model that sends a sign of life each second: after its text, or without
// any text.
func TestPump_OnlySignsOfLife_FailsAfterAnHour(t *testing.T) {
	for _, text := range []string{"", "hello"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			model := scriptedModel(func(ctx context.Context, write func([]byte)) (Result, error) {
				write([]byte(text))
				for ctx.Err() == nil {
					time.Sleep(time.Second)
					write(nil)
				}
				return Result{}, ctx.Err()
			})
			got := Pump(t.Context(), model, Request{}, NewReply("r"), Timeouts{FirstByte: time.Minute, Stall: time.Minute})
			if got.State != Failed || got.Err.Code != CodeProviderTimeout {
				t.Errorf("after %q: got %s, %v, want a provider_timeout", text, got.State, got.Err)
			}
			if after := time.Since(began); after < textTimeout || after > textTimeout+2*time.Second {
				t.Errorf("after %q: failed after %v, want %v", text, after, textTimeout)
			}
		})
	}
}
