package client

import (
	"encoding/json"
	"time"
)

// The types of events.
const (
	// Created: a message begins. Those of users and of the system are whole; a reply is streaming, without content yet.
	Created = "created"
	// Delta: text of a reply, Delta, which begins at Offset. Deltas of a message adjoin, whatever the connection does; only
	// where watching began in mid-reply, or after Cleared, is the first one's Offset above 0.
	Delta = "delta"
	// End: a reply is over. Message.Content is the truth and replaces what was shown (after the crash of a server, deltas may
	// have shown up to 50 ms more than was kept); Message.Status and Message.Error say how it ended.
	End = "end"
	// Cleared: the history was cleared, forget what was shown. Without Recovered that happened while the connection was
	// away, or the server no longer knew the cursor: what there is now is to be had from the history; what follows
	// begins from now on.
	Cleared = "cleared"
	// Deleted and Expired: the session is gone; the iteration ends.
	Deleted = "deleted"
	Expired = "expired"
	// Compressed: messages were folded into a summary, or dropped, to fit the context window.
	Compressed = "compressed"
)

// Event is what happened in a session (design section 4).
type Event struct {
	Type      string // Created, Delta, End, Cleared, Deleted, Expired or Compressed
	SessionID string
	MessageID string   // of Created, Delta and End
	Message   *Message // of Created and End
	Offset    int      // of Delta: where it begins in the reply's text, in bytes
	Delta     string   // never half a character
	Recovered bool     // of Cleared
	Cursor    string   // of Created, Delta and End: Watch after it goes on after this event

	// of Compressed: how many messages, and the tokens that the window needed and needs.
	Summarised, Dropped, TokensBefore, TokensAfter int
}

// Message is a message as the service shows it (spec: Message; design section 2).
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
	Context json.RawMessage `json:"context,omitempty"` // what the reply was built from (design section 5)
	Error   *Error          `json:"error,omitempty"`   // of a reply that failed
}

// Error is what the service refused, or one of the client's own: connection_lost (Unwrap has the cause), closed, no_key,
// session_deleted, session_expired, session_cleared. Take it out of an error with [errors.As].
type Error struct {
	Code    string // the service's: invalid_token, context_overflow, rate_limit_exceeded, … (spec: Errors)
	Message string
	Status  int    // of HTTP, also where a socket was told; 0 for the client's own
	Field   string // the offending one of a validation_error

	RetryAfter               time.Duration // of a rate_limit_exceeded or service_unavailable
	CurrentTokens, MaxTokens int           // of a context_overflow
	RequiredScope            string        // of an insufficient_scope
	RequestID                string        // names the request in the server's log

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
	errClosed   = &Error{Code: "closed", Message: "the client was closed"}
	errNoKey    = &Error{Code: "no_key", Message: "this needs a key: the client was made with tickets only"}
	errNonsense = &Error{Code: "internal_error", Message: "the server does not speak parley.v1"}
)

// statuses are those of the codes that a socket can be told, where there is no response to have one.
var statuses = map[string]int{
	"validation_error": 400, "invalid_token": 401, "insufficient_scope": 403, "session_not_found": 404, "message_not_found": 404,
	"session_busy": 409, "idempotency_conflict": 409, "context_overflow": 413, "rate_limit_exceeded": 429, "internal_error": 500,
	"provider_error": 502, "service_unavailable": 503, "provider_timeout": 504,
}

// UnmarshalJSON reads the error object of a body, a frame or a message (design section 2).
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

// errorBody is what a refusal consists of: a response's body, or part of a frame.
type errorBody struct {
	Error *Error `json:"error"`
	Meta  struct {
		RequestID string `json:"requestId"`
	} `json:"meta"`
}

// refusal returns the error that a response's body describes.
func refusal(status int, body []byte) *Error {
	var b errorBody
	if err := json.Unmarshal(body, &b); err != nil || b.Error == nil || b.Error.Code == "" { // a proxy's page, not ours
		return &Error{Code: "internal_error", Message: "the server does not answer as Parley does", Status: status, cause: err}
	}
	b.Error.Status, b.Error.RequestID = status, b.Meta.RequestID
	return b.Error
}
