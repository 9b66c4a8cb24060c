package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/stream"
)

// Error codes that are used in more than one place.
const (
	CodeValidation = "validation_error"
	codeInternal   = "internal_error"
)

// Reasons of validation errors that are used in more than one place.
const (
	Required    = "is required"
	WrongCursor = "is not a cursor of this session, or is ahead of everything the session ever had"
)

// Error is an error as callers see it.
type Error struct {
	Status  int
	Code    string
	Message string
	// Field is the invalid field. Reason continues a sentence that begins with Field: "must be a string".
	Field, Reason string
	// Extra holds further members of the error object.
	Extra map[string]any
	// RetryAfter is the value of the Retry-After header and of the member retryAfter. If it is 0, the response has neither.
	RetryAfter time.Duration
	// Allow is the value of the Allow header of a 405.
	Allow string
	// UnknownCursor marks the error for a well-formed cursor that the session never had. After a backup was restored, a client
	// may hold such a cursor for each of its sessions. So this error does not count towards the ten invalid frames that close
	// a socket.
	UnknownCursor bool
	// Cause is the cause of a 503, one of [Causes]. Only metrics and the log have it.
	Cause string
	// Decision is the decision of the limits that refused the request. The X-RateLimit headers show it. If Decision is nil,
	// these headers stay unchanged.
	Decision *limit.Decision
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// IsInvalidRequest reports whether the request failed validation, other than by an unknown cursor. On a socket, such a frame
// counts as invalid.
func (e *Error) IsInvalidRequest() bool { return e.Code == CodeValidation && !e.UnknownCursor }

// Errors that only HTTP requests get.
var (
	ErrNotFound   = errors.New("no such route")
	ErrTooLarge   = errors.New("the body is too large")
	ErrMediaType  = errors.New("the body is not declared as application/json")
	ErrCompressed = errors.New("the body is compressed")
	ErrOrigin     = errors.New("the origin is not allowed")
	ErrUnread     = errors.New("the account has too many unread large responses")
	ErrPagesBusy  = errors.New("the account requests too many pages at once")
	ErrModel      = errors.New("the default model cannot be used, and the server requires it")
)

// table maps errors without data to their status, code and text. The first row that matches applies.
var table = []row{
	{auth.ErrInvalidToken, 401, "invalid_token", "The API key or ticket is missing, invalid or expired. Send the header Authorization: Bearer svc_live_… (or svc_test_…), once."},
	{conversation.ErrSessionNotFound, 404, "session_not_found", "The session does not exist or has expired."},
	{conversation.ErrMessageNotFound, 404, "message_not_found", "The message does not exist."},
	{auth.ErrKeyNotFound, 404, "key_not_found", "The key does not exist or no longer works."},
	{conversation.ErrSessionBusy, 409, "session_busy", "The session is busy with another message. Try again when its reply has ended."},
	{conversation.ErrIdempotencyConflict, 409, "idempotency_conflict", "This idempotency key was used for a different request. Use a new key."},
	{ErrNotFound, 404, "not_found", "This route does not exist. See /docs for the list."},
	{ErrTooLarge, 413, "payload_too_large", "The body is larger than 1 MiB."},
	{ErrMediaType, 415, "unsupported_media_type", "The body must be JSON in UTF-8. Send the header Content-Type: application/json."},
	{ErrCompressed, 415, "unsupported_media_type", "The body must not be compressed. Do not send the header Content-Encoding."},
	{ErrOrigin, 403, "origin_not_allowed", "Connections from this origin are not allowed. The operator can add it to PARLEY_ORIGINS."},
}

type row struct {
	is      error
	status  int
	code    string
	message string
}

// Invalid returns a validation error (400) for a field. field is "" if the request as a whole is invalid.
func Invalid(field, reason string) *Error {
	message := reason + "."
	if field != "" {
		message = field + " " + message
	}
	return &Error{Status: http.StatusBadRequest, Code: CodeValidation, Message: message, Field: field, Reason: reason}
}

// Internal returns the error for an internal fault (500). It does not tell the caller the cause.
func Internal() *Error {
	return &Error{Status: http.StatusInternalServerError, Code: codeInternal, Message: "Something went wrong on our side."}
}

// Describe converts err to the error that the caller sees. fault reports whether the server is at fault. If so, the caller of
// Describe must log err.
func Describe(err error) (e *Error, fault bool) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e, false
	}
	if overflow, ok := errors.AsType[*conversation.OverflowError](err); ok {
		return overflowed(overflow), false
	}
	if invalid, ok := errors.AsType[*conversation.SettingsError](err); ok {
		return Invalid(invalid.Field, invalid.Reason), false
	}
	if refused, ok := errors.AsType[*auth.LimitError](err); ok {
		return Limited(refused.Decision), false
	}
	if refused, ok := errors.AsType[*auth.QuotaError](err); ok {
		return quotaExceeded(refused), false
	}
	for _, row := range table {
		if errors.Is(err, row.is) {
			return &Error{Status: row.status, Code: row.code, Message: row.message}, false
		}
	}
	for _, row := range unavailable {
		if errors.Is(err, row.is) {
			return row.error(), row.fault
		}
	}
	return Internal(), true
}

// overflowed returns the error (413) for a message that does not fit the context window.
func overflowed(overflow *conversation.OverflowError) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Code: conversation.CodeContextOverflow,
		Message: "The message does not fit the session's context window. Clear the history, shorten the message, or use a session with compression enabled.",
		Extra:   map[string]any{"currentTokens": overflow.CurrentTokens, "maxTokens": overflow.MaxTokens},
	}
}

// Limited returns the error (429) for a request that a rate limit refused.
func Limited(d limit.Decision) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded",
		Message:    "The limit of " + strconv.Itoa(d.RefusedLimit) + " " + d.Refused.String() + " is reached.",
		Extra:      map[string]any{"limit": d.Refused.Name()},
		RetryAfter: time.Duration(d.RetryAfter) * time.Second,
		Decision:   &d,
	}
}

// quotaTexts holds the message for each quota. It contains two numbers: the used part of the quota, and the quota.
var quotaTexts = map[limit.Quota]string{
	limit.QuotaKeys:           "The account has %d of %d active keys. Revoke a key first.",
	limit.QuotaActiveSessions: "The account has %d of %d active sessions. Delete a session first.",
	limit.QuotaSockets:        "The account has %d of %d open sockets. Close a socket first.",
	limit.QuotaStoredBytes:    "The account stores %d of %d bytes, so the request does not fit. Delete a session or clear its messages first.",
	limit.QuotaTokensPerMonth: "The account has used %d tokens in this calendar month, and may use %d. Wait for the next month.",
}

// quotaExceeded returns the error (429) for a request that a quota refused. It has no RetryAfter, because a quota does not
// refill within a minute.
func quotaExceeded(e *auth.QuotaError) *Error {
	return &Error{
		Status: http.StatusTooManyRequests, Code: "quota_exceeded", Message: fmt.Sprintf(quotaTexts[e.Quota], e.Used, e.Limit),
		Extra: map[string]any{"quota": e.Quota, "used": e.Used, "limit": e.Limit},
	}
}

// Failed returns the error for a send without streaming after its reply has failed: 502, 504 if the model timed out, or 413 if the
// model's context cannot hold the prompt.
func Failed(m conversation.Message) *Error {
	if overflow := m.Overflow(); overflow != nil {
		e := overflowed(overflow)
		e.Extra["messageId"] = m.ID
		return e
	}
	e := &Error{
		Status: http.StatusBadGateway, Code: stream.CodeProviderError, Message: "The model failed.",
		Extra: map[string]any{"messageId": m.ID},
	}
	if m.Error != nil {
		e.Code, e.Message = m.Error.Code, sentence(m.Error.Message)
	}
	if e.Code == stream.CodeProviderTimeout {
		e.Status = http.StatusGatewayTimeout
	}
	return e
}

// RequireScope returns nil if the principal has the scope, otherwise an [Error] (403).
func RequireScope(p auth.Principal, scope auth.Scope) error {
	if p.Has(scope) {
		return nil
	}
	return &Error{
		Status: http.StatusForbidden, Code: "insufficient_scope", Message: "The key lacks the scope " + string(scope) + ".",
		Extra: map[string]any{"requiredScope": scope},
	}
}

// Body returns the error object, which is the same in response bodies and in frames.
func (e *Error) Body() map[string]any {
	body := map[string]any{"code": e.Code, "message": e.Message}
	if e.Field != "" {
		body["field"] = e.Field
		body["details"] = map[string]any{"field": e.Field, "reason": e.Reason}
	}
	if e.RetryAfter > 0 {
		body["retryAfter"] = Seconds(e.RetryAfter)
	}
	for name, value := range e.Extra {
		body[name] = value
	}
	return body
}

// Meta is the member meta of an error response or an error frame.
type Meta struct {
	RequestID string            `json:"requestId"`
	Timestamp conversation.Time `json:"timestamp"`
}

// NewMeta returns the meta of an error, with the current time.
func NewMeta(requestID string) Meta {
	return Meta{RequestID: requestID, Timestamp: conversation.TimeOf(time.Now())}
}

// Seconds returns d in whole seconds. It rounds up, so that a client that waits for this time does not retry too early.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// sentence adds a capital letter and a full stop to s if s begins with a lower-case letter. Otherwise it returns s unchanged.
func sentence(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return string(s[0]-'a'+'A') + s[1:] + "."
}
