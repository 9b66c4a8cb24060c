package client

import (
	"encoding/json"
	"time"
)

// The types of events.
const (
	// Created means that a message was created. A reply is streaming and has no content yet; any other message is
	// complete.
	Created = "created"
	// Delta is text of a reply, from byte Offset on. Deltas of a message adjoin, even over a lost connection. The first
	// one has an Offset above 0 only if the iteration began in mid-reply, or after Cleared.
	Delta = "delta"
	// End means that a reply has ended, as Message.Status and Message.Error describe. Message.Content is authoritative
	// and replaces the text of the deltas: after the crash of a server, deltas may have contained up to 50 ms more text
	// than was stored.
	End = "end"
	// Cleared means that the history was cleared: discard what was shown. If Recovered is false, this happened while the
	// connection was lost, or the server no longer knew the cursor: read the history for the present state. Later events
	// follow.
	Cleared = "cleared"
	// Deleted and Expired mean that the session is gone. The iteration ends.
	Deleted = "deleted"
	Expired = "expired"
	// Compressed means that messages were replaced by a summary, or dropped, to fit the context window.
	Compressed = "compressed"
)

// Event is something that happened in a session.
type Event struct {
	Type      string // Created, Delta, End, Cleared, Deleted, Expired or Compressed
	SessionID string
	MessageID string   // set for Created, Delta and End
	Message   *Message // set for Created and End
	Offset    int      // for Delta: the offset of Delta in the text of the reply, in bytes
	Delta     string   // for Delta: the text, in whole characters
	Recovered bool     // for Cleared: see there
	Cursor    string   // for Created, Delta and End: pass it to Watch to continue after this event

	// For Compressed: numbers of messages, and their tokens in a prompt before and after.
	Summarised, Dropped, TokensBefore, TokensAfter int
}

// Message is a message in the service's JSON form.
type Message struct {
	MessageID    string          `json:"messageId"`
	SessionID    string          `json:"sessionId"`
	Role         string          `json:"role"` // user, system or assistant
	Content      string          `json:"content"`
	Tokens       int             `json:"tokens"`
	CreatedAt    time.Time       `json:"createdAt"`
	Status       string          `json:"status"` // streaming, completed, cancelled, failed or interrupted
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	FinishReason string          `json:"finishReason,omitempty"`
	Usage        *struct {
		Prompt     int  `json:"prompt"`
		Completion int  `json:"completion"`
		Total      int  `json:"total"`
		Estimated  bool `json:"estimated"`
	} `json:"usage,omitempty"`
	Context json.RawMessage `json:"context,omitempty"` // of a reply: what its prompt contained
	Error   *Error          `json:"error,omitempty"`   // set for a failed reply
}

// Error is a refusal by the service, or one of the client's own errors: connection_lost, closed, no_key, session_deleted,
// session_expired, session_cleared. Get it from an error with [errors.As].
type Error struct {
	Code    string // such as invalid_token, context_overflow or rate_limit_exceeded
	Message string
	Status  int    // the HTTP status, also for an error on a socket; 0 for the client's own errors
	Field   string // the invalid field of a validation_error

	RetryAfter               time.Duration // for rate_limit_exceeded and service_unavailable
	CurrentTokens, MaxTokens int           // for context_overflow
	RequiredScope            string        // for insufficient_scope
	RequestID                string        // identifies the request in the server's log

	cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Code + ": " + e.Message + ": " + e.cause.Error()
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause, for example of a connection_lost, or nil.
func (e *Error) Unwrap() error { return e.cause }

var (
	errClosed    = &Error{Code: "closed", Message: "the client was closed"}
	errNoKey     = &Error{Code: "no_key", Message: "this call needs Options.Key: a ticket only opens a socket"}
	errNotParley = &Error{Code: "internal_error", Message: "the server does not speak parley.v1"}
)

// statuses are the HTTP statuses of error codes. Errors on a socket come without a status.
var statuses = map[string]int{
	"validation_error": 400, "invalid_token": 401, "insufficient_scope": 403, "session_not_found": 404, "message_not_found": 404,
	"session_busy": 409, "idempotency_conflict": 409, "context_overflow": 413, "rate_limit_exceeded": 429, "internal_error": 500,
	"provider_error": 502, "service_unavailable": 503, "provider_timeout": 504,
}

// UnmarshalJSON decodes the error object of a response, a frame or a message.
func (e *Error) UnmarshalJSON(text []byte) error {
	var f struct {
		Code, Message, Field, RequiredScope  string
		CurrentTokens, MaxTokens, RetryAfter int // RetryAfter in seconds
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	*e = Error{
		Code: f.Code, Message: f.Message, Status: statuses[f.Code], Field: f.Field, RetryAfter: time.Duration(f.RetryAfter) * time.Second,
		CurrentTokens: f.CurrentTokens, MaxTokens: f.MaxTokens, RequiredScope: f.RequiredScope,
	}
	return nil
}

// errorBody is the part with the error in a response body or a frame.
type errorBody struct {
	Error *Error `json:"error"`
	Meta  struct {
		RequestID string `json:"requestId"`
	} `json:"meta"`
}

// refusal returns the error in the body of a response, or internal_error if the body is not from Parley.
func refusal(status int, body []byte) *Error {
	var b errorBody
	if err := json.Unmarshal(body, &b); err != nil || b.Error == nil || b.Error.Code == "" { // for example from a proxy
		return &Error{Code: "internal_error", Message: "the response is not from a Parley server", Status: status, cause: err}
	}
	b.Error.Status, b.Error.RequestID = status, b.Meta.RequestID
	return b.Error
}
