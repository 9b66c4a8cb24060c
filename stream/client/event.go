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
	// Delta is a piece of a reply's text. Offset is the position of its first byte in the text. A delta begins where the
	// previous delta of the reply ended, even after a lost connection. The first delta of a reply has an Offset above 0
	// only if the iteration began in the middle of the reply, or after Cleared.
	Delta = "delta"
	// End means that a reply has ended. Message.Status is its final state. Message.Content is authoritative and replaces
	// the text of the deltas: if a server crashes, the deltas may contain about 50 ms of text that was not stored.
	End = "end"
	// Cleared means that the history was cleared: discard all messages that you have shown. If Recovered is false, the
	// history was cleared during a lost connection, or the server did not know the cursor. In this case, also read the
	// history again. Later events follow.
	Cleared = "cleared"
	// Deleted and Expired mean that the session is gone. The iteration ends.
	Deleted = "deleted"
	Expired = "expired"
	// Compressed means that a summary has replaced messages in the prompt, or that messages were dropped from the prompt.
	Compressed = "compressed"
	// Reasoning means that the model reasons, and that the reply has no text yet. It comes at most once a second. A lost
	// connection does not repeat it.
	Reasoning = "reasoning"
)

// Event is one event of a session.
type Event struct {
	Type      string // Created, Delta, End, Cleared, Deleted, Expired, Compressed or Reasoning
	SessionID string
	MessageID string   // set for Created, Delta, End and Reasoning
	Message   *Message // set for Created and End
	Offset    int      // set for Delta: the position of the piece in the text of the reply, in bytes
	Delta     string   // set for Delta: the piece of text, which consists of whole characters
	Recovered bool     // set for Cleared; the comment of the constant Cleared explains it
	Cursor    string   // set for Created, Delta and End: the position after this event, for a later Watch

	// Set for Compressed: the numbers of summarised and dropped messages, and the number of prompt tokens that they took
	// before and take now.
	Summarised, Dropped, TokensBefore, TokensAfter int
}

// Message is a message in the form that the service returns.
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
		Reasoning  int  `json:"reasoning"` // the part of Completion that the model spent on reasoning; 0 if unknown
		Total      int  `json:"total"`
		Estimated  bool `json:"estimated"`
	} `json:"usage,omitempty"`
	Context json.RawMessage `json:"context,omitempty"` // set for a reply: the service's report about the prompt
	Error   *Error          `json:"error,omitempty"`   // set for a failed reply
}

// Error is an error response of the service, or an error of the client itself. The client's own codes are connection_lost,
// closed, no_key, session_deleted, session_expired, session_cleared, and internal_error if the server is not Parley. Use
// [errors.As] to find an Error in an error.
type Error struct {
	Code    string // such as invalid_token, context_overflow or rate_limit_exceeded
	Message string
	Status  int    // the HTTP status that belongs to Code, even for an error on a socket; 0 if there is none
	Field   string // the invalid field of a validation_error

	RetryAfter               time.Duration // set for rate_limit_exceeded and service_unavailable
	RateLimit                string        // set for rate_limit_exceeded: the name of the limit, for example requestsPerMinute
	Quota                    string        // set for quota_exceeded: the name of the quota, for example keys
	QuotaUsed, QuotaLimit    int64         // set for quota_exceeded
	CurrentTokens, MaxTokens int           // set for context_overflow
	RequiredScope            string        // set for insufficient_scope
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

// Unwrap returns the underlying error, for example a network error for connection_lost; nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

var (
	errClosed    = &Error{Code: "closed", Message: "the client was closed"}
	errNoKey     = &Error{Code: "no_key", Message: "this call needs Options.Key: a ticket only opens a socket"}
	errNotParley = &Error{Code: "internal_error", Message: "the server does not speak parley.v1"}
)

// statuses has the HTTP status for each error code. Error frames on a socket contain only the code.
var statuses = map[string]int{
	"validation_error": 400, "invalid_token": 401, "insufficient_scope": 403, "session_not_found": 404, "message_not_found": 404,
	"session_busy": 409, "idempotency_conflict": 409, "context_overflow": 413, "rate_limit_exceeded": 429, "quota_exceeded": 429,
	"internal_error": 500, "provider_error": 502, "empty_reply": 502, "service_unavailable": 503, "provider_timeout": 504,
}

// UnmarshalJSON decodes the error object of a response, a frame or a message.
func (e *Error) UnmarshalJSON(text []byte) error {
	var f struct {
		Code, Message, Field, RequiredScope, Quota string
		CurrentTokens, MaxTokens, RetryAfter       int // RetryAfter in seconds
		Used                                       int64
		Limit                                      json.RawMessage // a name in rate_limit_exceeded, a number in quota_exceeded
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	*e = Error{
		Code: f.Code, Message: f.Message, Status: statuses[f.Code], Field: f.Field, RetryAfter: time.Duration(f.RetryAfter) * time.Second,
		CurrentTokens: f.CurrentTokens, MaxTokens: f.MaxTokens, RequiredScope: f.RequiredScope, Quota: f.Quota, QuotaUsed: f.Used,
	}
	if json.Unmarshal(f.Limit, &e.RateLimit) != nil {
		e.RateLimit = ""
		_ = json.Unmarshal(f.Limit, &e.QuotaLimit) // a limit that is neither a name nor a number is ignored
	}
	return nil
}

// errorBody is the body of an error response. An error frame contains the same fields.
type errorBody struct {
	Error *Error `json:"error"`
	Meta  struct {
		RequestID string `json:"requestId"`
	} `json:"meta"`
}

// refusal returns the error in the body of an error response. It returns internal_error if the body is not from Parley, but
// for example from a proxy.
func refusal(status int, body []byte) *Error {
	var b errorBody
	if err := json.Unmarshal(body, &b); err != nil || b.Error == nil || b.Error.Code == "" {
		return &Error{Code: "internal_error", Message: "the response is not from a Parley server", Status: status, cause: err}
	}
	b.Error.Status, b.Error.RequestID = status, b.Meta.RequestID
	return b.Error
}
