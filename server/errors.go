package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/stream"
)

// apiError is an error as callers see it (spec: Errors; design section 2). Every error of a request becomes one, here
// and nowhere else; what it was made of is for the log.
type apiError struct {
	status  int
	code    string
	message string
	// field is the offending field, and reason what is wrong with it.
	field, reason string
	// extra are further fields of the error object.
	extra map[string]any
	// retryAfter is also sent as a header; 0 is none.
	retryAfter time.Duration
	allow      string // the Allow header of a 405
	// honest says that the request made sense, though a field of it does not fit what the store holds: no nonsense to close a
	// socket for.
	honest bool
	// figures are those of the limit that refuses, nil for those that the response has already.
	figures *limit.Decision
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

// known is the table of errors that need no more than their row.
var known = []struct {
	is      error
	status  int
	code    string
	message string
}{
	{auth.ErrInvalidToken, 401, "invalid_token", "The API key or ticket is missing, invalid or expired. Send the header Authorization: Bearer svc_live_… (or svc_test_…), once."},
	{conversation.ErrSessionNotFound, 404, "session_not_found", "The session does not exist or has expired."},
	{conversation.ErrMessageNotFound, 404, "message_not_found", "The message does not exist."},
	{auth.ErrKeyNotFound, 404, "key_not_found", "The key does not exist, or no longer works."},
	{conversation.ErrSessionBusy, 409, "session_busy", "The session is busy with another message."},
	{conversation.ErrIdempotencyConflict, 409, "idempotency_conflict", "The idempotency key was used for another request."},
	{conversation.ErrCancelPending, 503, "service_unavailable", "The reply has not stopped yet; it will."},
	{conversation.ErrDraining, 503, "service_unavailable", "The server is stopping or restarting. Try again."},
	{conversation.ErrUnavailable, 503, "service_unavailable", "The service is not available at the moment."},
	// The caller has gone, or closed its side of the connection and reads on. What waits only for a reply goes on waiting.
	{context.Canceled, 503, "service_unavailable", "The connection was closed on your side before this was done. Try again."},
	{errNotFound, 404, "not_found", "There is no such route."},
	{errTooLarge, 413, "payload_too_large", "The body is larger than 1 MiB."},
	{errMediaType, 415, "unsupported_media_type", "The body must be JSON in UTF-8: send the header Content-Type: application/json."},
	{errCompressed, 415, "unsupported_media_type", "The body must not be compressed: send no Content-Encoding."},
	{errOrigin, 403, "origin_not_allowed", "Connections from this origin are not allowed."},
}

// The errors that only this room has.
var (
	errNotFound   = errors.New("no such route")
	errTooLarge   = errors.New("the body is too large")
	errMediaType  = errors.New("the body is not declared as application/json")
	errCompressed = errors.New("the body is compressed")
	errOrigin     = errors.New("the origin is not allowed")
)

// retrySoon is what callers are told to wait where the service may well be back in a moment.
const retrySoon = time.Second

// invalid is the error of a field that cannot be taken as it is.
func invalid(field, reason string) *apiError {
	message := reason + "."
	if field != "" {
		message = field + " " + message
	}
	return &apiError{status: http.StatusBadRequest, code: "validation_error", message: message, field: field, reason: reason}
}

// describe returns err as callers see it, and whether it is a fault of ours that the log must hold.
func describe(err error) (e *apiError, fault bool) {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e, false
	}
	if overflow, ok := errors.AsType[*conversation.OverflowError](err); ok {
		return &apiError{
			status: http.StatusRequestEntityTooLarge, code: "context_overflow",
			message: "The message does not fit the session's context window. Clear the history, shorten the message, or use a session with compression enabled.",
			extra:   map[string]any{"currentTokens": overflow.CurrentTokens, "maxTokens": overflow.MaxTokens},
		}, false
	}
	if refused, ok := errors.AsType[*auth.LimitError](err); ok {
		return limited(refused.Decision), false
	}
	for _, k := range known {
		if errors.Is(err, k.is) {
			e := &apiError{status: k.status, code: k.code, message: k.message}
			if k.status == http.StatusServiceUnavailable {
				e.retryAfter = retrySoon
			}
			return e, k.is == conversation.ErrUnavailable && err != conversation.ErrUnavailable //nolint:errorlint // bare: we refused
		}
	}
	return &apiError{status: 500, code: "internal_error", message: "Something went wrong on our side."}, true
}

// failed is the error of a reply that failed, for those who waited for it.
func failed(m conversation.Message) *apiError {
	e := &apiError{
		status: http.StatusBadGateway, code: stream.CodeProviderError, message: "The model failed.",
		extra: map[string]any{"messageId": m.ID},
	}
	if m.Error != nil {
		e.code, e.message = m.Error.Code, sentence(m.Error.Message)
	}
	if e.code == stream.CodeProviderTimeout {
		e.status = http.StatusGatewayTimeout
	}
	return e
}

// errorBody is the error object: the same in bodies and in frames.
func (e *apiError) body() map[string]any {
	body := map[string]any{"code": e.code, "message": e.message}
	if e.field != "" {
		body["field"] = e.field
		body["details"] = map[string]any{"field": e.field, "reason": e.reason}
	}
	if e.retryAfter > 0 {
		body["retryAfter"] = seconds(e.retryAfter)
	}
	for name, value := range e.extra {
		body[name] = value
	}
	return body
}

// meta is what every error carries beside the error object.
type meta struct {
	RequestID string            `json:"requestId"`
	Timestamp conversation.Time `json:"timestamp"`
}

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// sentence returns a message with a capital and a full stop.
func sentence(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:] + "."
}
