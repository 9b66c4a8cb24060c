package client

import (
	"encoding/json"
	"time"
)

// The types of events.
const (
	// Created: a message begins. It is complete if it is from a user or the system; a reply is streaming and has no
	// content yet.
	Created = "created"
	// Delta: text of a reply, which begins at Offset. Deltas of a message adjoin, whatever happens to the connection.
	// The first one has an Offset above 0 only if the iteration began in mid-reply, or after Cleared.
	Delta = "delta"
	// End: a reply has ended. Message.Content is authoritative and replaces what was shown: after the crash of a
	// server, deltas may have shown up to 50 ms more than was stored. Message.Status and Message.Error say how it
	// ended.
	End = "end"
	// Cleared: the history was cleared; discard what was shown. Without Recovered it happened while the connection
	// was lost, or the server no longer knew the cursor: read the history for the present state. Later events follow.
	Cleared = "cleared"
	// Deleted and Expired: the session is gone. The iteration ends.
	Deleted = "deleted"
	Expired = "expired"
	// Compressed: messages were replaced by a summary, or dropped, to fit the context window.
	Compressed = "compressed"
)

// Event is something that happened in a session.
type Event struct {
	Type      string // Created, Delta, End, Cleared, Deleted, Expired or Compressed
	SessionID string
	MessageID string   // of Created, Delta and End
	Message   *Message // of Created and End
	Offset    int      // of Delta: where it begins in the text of the reply, in bytes
	Delta     string   // of Delta: whole characters
	Recovered bool     // of Cleared
	Cursor    string   // of Created, Delta and End: pass it to Watch to continue after this event

	// of Compressed: numbers of messages, and of tokens in the prompt before and after
	Summarised, Dropped, TokensBefore, TokensAfter int
}

// Message is a message as the service shows it.
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
	Context json.RawMessage `json:"context,omitempty"` // what the prompt of the reply contained
	Error   *Error          `json:"error,omitempty"`   // of a reply that failed
}

// Error is a refusal by the service, or one of the client's own errors: connection_lost (Unwrap returns the cause),
// closed, no_key, session_deleted, session_expired, session_cleared. Get it from an error with [errors.As].
type Error struct {
	Code    string // such as invalid_token, context_overflow or rate_limit_exceeded
	Message string
	Status  int    // the HTTP status, also for an error on a socket; 0 for the client's own errors
	Field   string // the invalid field of a validation_error

	RetryAfter               time.Duration // of a rate_limit_exceeded or service_unavailable
	CurrentTokens, MaxTokens int           // of a context_overflow
	RequiredScope            string        // of an insufficient_scope
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

// Unwrap returns the cause of a connection_lost.
func (e *Error) Unwrap() error { return e.cause }

var (
	errClosed    = &Error{Code: "closed", Message: "the client was closed"}
	errNoKey     = &Error{Code: "no_key", Message: "this call needs Options.Key: a ticket only opens a socket"}
	errNotParley = &Error{Code: "internal_error", Message: "the server does not speak parley.v1"}
)

// statuses are the HTTP statuses of the codes that arrive on a socket, where there is no response.
var statuses = map[string]int{
	"validation_error": 400, "invalid_token": 401, "insufficient_scope": 403, "session_not_found": 404, "message_not_found": 404,
	"session_busy": 409, "idempotency_conflict": 409, "context_overflow": 413, "rate_limit_exceeded": 429, "internal_error": 500,
	"provider_error": 502, "service_unavailable": 503, "provider_timeout": 504,
}

// UnmarshalJSON reads the error object of a response, a frame or a message.
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

// errorBody is a refusal: the body of a response, or part of a frame.
type errorBody struct {
	Error *Error `json:"error"`
	Meta  struct {
		RequestID string `json:"requestId"`
	} `json:"meta"`
}

// refusal returns the error in the body of a response.
func refusal(status int, body []byte) *Error {
	var b errorBody
	if err := json.Unmarshal(body, &b); err != nil || b.Error == nil || b.Error.Code == "" { // from a proxy, say
		return &Error{Code: "internal_error", Message: "the response is not from a Parley server", Status: status, cause: err}
	}
	b.Error.Status, b.Error.RequestID = status, b.Meta.RequestID
	return b.Error
}
