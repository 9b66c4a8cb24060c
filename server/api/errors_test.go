package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/stream"
)

func TestDescribe_StatusCodeAndFault(t *testing.T) {
	refused := &auth.LimitError{Decision: limit.Decision{Limit: 60, RetryAfter: 7}}
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
		retry  time.Duration
		fault  bool
	}{
		"a row of the table":          {conversation.ErrSessionNotFound, 404, "session_not_found", 0, false},
		"a row of the table, wrapped": {fmt.Errorf("reading: %w", conversation.ErrSessionNotFound), 404, "session_not_found", 0, false},
		"an Error":                    {Invalid("limit", "must be smaller"), 400, "validation_error", 0, false},
		"a context overflow":          {&conversation.OverflowError{CurrentTokens: 9, MaxTokens: 8}, 413, "context_overflow", 0, false},
		"a limit":                     {refused, 429, "rate_limit_exceeded", 7 * time.Second, false},
		"unavailable without a cause": {conversation.ErrUnavailable, 503, "service_unavailable", retrySoon, false},
		"unavailable with a cause":    {fmt.Errorf("%w: no route", conversation.ErrUnavailable), 503, "service_unavailable", retrySoon, true},
		"the caller disconnected":     {context.Canceled, 503, "service_unavailable", retrySoon, false},
		"an unknown error":            {errors.New("secret detail"), 500, "internal_error", 0, true},
		"a deadline, not wrapped":     {context.DeadlineExceeded, 500, "internal_error", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, fault := Describe(test.err)
			if e.Status != test.status || e.Code != test.code || e.RetryAfter != test.retry || fault != test.fault {
				t.Errorf("got %+v, fault %v, want %+v", e, fault, test)
			}
			if e.Status == 500 && e.Message != Internal().Message {
				t.Errorf("the caller sees the cause: %q", e.Message)
			}
		})
	}
}

func TestInvalid_BodyNamesField(t *testing.T) {
	e := Invalid("scopes.0", "must be a string")
	if body := fmt.Sprint(e.Body()); body != "map[code:validation_error details:map[field:scopes.0 reason:must be a string] field:scopes.0 message:scopes.0 must be a string.]" {
		t.Errorf("the body is %s", body)
	}
	if !e.IsInvalidRequest() {
		t.Error("a validation error does not count as an invalid request")
	}
	if e.UnknownCursor = true; e.IsInvalidRequest() {
		t.Error("an unknown cursor counts as an invalid request")
	}
}

func TestFailed_StatusFollowsCode(t *testing.T) {
	for code, status := range map[string]int{stream.CodeProviderError: 502, stream.CodeProviderTimeout: 504} {
		m := conversation.Message{ID: "msg_1", Error: &conversation.ReplyError{Code: code, Message: "the model broke off"}}
		if e := Failed(m); e.Status != status || e.Code != code || e.Message != "The model broke off." || e.Extra["messageId"] != "msg_1" {
			t.Errorf("got %+v, want status %d and code %s", e, status, code)
		}
	}
}

func TestSeconds_RoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2} {
		if got := Seconds(d); got != want {
			t.Errorf("%v is %d s, want %d", d, got, want)
		}
	}
}
