package wire

import "encoding/json"

// This file contains all frames except the frames of events, which events.go encodes.

// The types of the requests that a client sends.
const (
	TypeSubscribe   = "subscribe"
	TypeUnsubscribe = "unsubscribe"
	TypeSend        = "send"
	TypeCancel      = "cancel"
	TypePing        = "ping"
)

// Subscribe requests the events of a session. After is a cursor; nil means the end of the session.
type Subscribe struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	SessionID string  `json:"sessionId"`
	After     *string `json:"after"`
}

// Unsubscribe ends a subscription.
type Unsubscribe struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
}

// Send sends a message to a session, like POST …/messages.
type Send struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	SessionID string          `json:"sessionId"`
	Content   *string         `json:"content"`
	Role      *string         `json:"role"`
	Metadata  json.RawMessage `json:"metadata"`
	OnBusy    *string         `json:"onBusy"`
	// IdempotencyKey identifies a repeated send, like the header Idempotency-Key in REST.
	IdempotencyKey *string `json:"idempotencyKey"`
}

// Cancel cancels a reply.
type Cancel struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	MessageID string `json:"messageId"`
}

// Ping requests a Pong.
type Ping struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// Welcome is the first frame of a connection.
type Welcome struct {
	Type             string `json:"type"` // "welcome"
	Protocol         string `json:"protocol"`
	ConnectionID     string `json:"connectionId"`
	HeartbeatSeconds int    `json:"heartbeatSeconds"`
}

// Subscribed is the response to Subscribe, and the first frame of a subscription. Cursor is the position at which the
// subscription begins. Recovered is false if some text or messages after the requested cursor no longer exist.
type Subscribed struct {
	Type      string `json:"type"` // "subscribed"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
	Cursor    string `json:"cursor"`
	Recovered bool   `json:"recovered"`
}

// Unsubscribed is the response to Unsubscribe.
type Unsubscribed struct {
	Type      string `json:"type"` // "unsubscribed"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
}

// Sent is the response to Send after the turn has begun. MessageID is the id of the reply. Sent comes before all events of
// the turn. If an earlier send with the same IdempotencyKey began the turn, Cursor is the position before the reply, and
// events of the turn may come before Sent. Otherwise, Cursor is "".
type Sent struct {
	Type      string `json:"type"` // "sent"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
	MessageID string `json:"messageId"`
	Cursor    string `json:"cursor,omitempty"`
}

// Cancelled is the response to Cancel after the request to the model was closed. Message is the reply in its final state.
type Cancelled struct {
	Type    string `json:"type"` // "cancelled"
	ReplyTo string `json:"replyTo,omitempty"`
	Message any    `json:"message"`
}

// Pong is the response to Ping.
type Pong struct {
	Type    string `json:"type"` // "pong"
	ReplyTo string `json:"replyTo,omitempty"`
}

// Draining means that the node is shutting down. A close with CloseDraining follows.
type Draining struct {
	Type             string `json:"type"` // "draining"
	ReconnectAfterMs int    `json:"reconnectAfterMs"`
}

// Error is the response to a request that failed. Its fields error and meta have the same form as in an error response of
// REST.
type Error struct {
	Type    string `json:"type"` // "error"
	ReplyTo string `json:"replyTo,omitempty"`
	Error   any    `json:"error"`
	Meta    any    `json:"meta"`
}
