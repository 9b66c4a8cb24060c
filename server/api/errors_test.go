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

func TestDescribe_EachError_StatusCodeAndFault(t *testing.T) {
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
		"a quota":                     {&auth.QuotaError{Quota: limit.QuotaKeys, Used: 3, Limit: 3}, 429, "quota_exceeded", 0, false},
		"a limit":                     {refused, 429, "rate_limit_exceeded", 7 * time.Second, false},
		"the store has failed":        {conversation.Unavailable(errors.New("no route")), 503, "service_unavailable", retrySoon, true},
		"a refusal":                   {conversation.ErrInflightLimit, 503, "service_unavailable", retrySoon, false},
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

func TestLimited_BodyNamesLimit(t *testing.T) {
	for kind, want := range map[limit.Kind]string{
		limit.ByRequests: "requestsPerMinute", limit.ByDay: "requestsPerDay", limit.ByTokens: "tokensPerMinute",
		limit.ByFailures: "failedAuthenticationsPerMinute",
	} {
		if got := Limited(limit.Decision{Refused: kind, Limit: 60, RetryAfter: 7}).Body()["limit"]; got != want {
			t.Errorf("the limit is %v, want %s", got, want)
		}
	}
}

func TestDescribe_QuotaError_BodyHasFigures(t *testing.T) {
	e, _ := Describe(&auth.QuotaError{Quota: limit.QuotaKeys, Used: 12, Limit: 10})
	if body := fmt.Sprint(e.Body()); body != "map[code:quota_exceeded limit:10 message:The account has 12 of 10 active keys. Revoke a key first. quota:keys used:12]" {
		t.Errorf("the body is %s", body)
	}
}

func TestFailed_StatusFollowsCode(t *testing.T) {
	for code, status := range map[string]int{stream.CodeProviderError: 502, stream.CodeProviderTimeout: 504, stream.CodeEmptyReply: 502} {
		m := conversation.Message{ID: "msg_1", Error: &conversation.ReplyError{Code: code, Message: "the model broke off"}}
		if e := Failed(m); e.Status != status || e.Code != code || e.Message != "The model broke off." || e.Extra["messageId"] != "msg_1" {
			t.Errorf("got %+v, want status %d and code %s", e, status, code)
		}
	}
}

func TestFailed_PromptDoesNotFitModel_413WithSizes(t *testing.T) {
	m := conversation.Message{
		ID: "msg_1", Error: &conversation.ReplyError{Code: conversation.CodeContextOverflow, Message: "it does not fit"},
		Context: &conversation.ContextReport{PromptTokens: 900, MaxTokens: 4096, ModelTokens: 1024},
	}
	e := Failed(m)
	if e.Status != 413 || e.Code != "context_overflow" || fmt.Sprint(e.Extra) != "map[currentTokens:1156 maxTokens:1024 messageId:msg_1]" {
		t.Errorf("got %+v", e)
	}
	m.Context.PromptTokens = 500 // the provider refused a prompt that fits by our count
	if e := Failed(m); e.Extra["currentTokens"] != 1025 {
		t.Errorf("got %+v, want more tokens than the window has", e)
	}
}

func TestSeconds_RoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Second: 1, time.Second + 1: 2} {
		if got := Seconds(d); got != want {
			t.Errorf("%v is %d s, want %d", d, got, want)
		}
	}
}
