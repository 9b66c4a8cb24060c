package wire

import "encoding/json"

// This file has the frames of requests and of their responses. events.go encodes the frames of events, including deltas.

// The types of a client's requests.
const (
	TypeSubscribe   = "subscribe"
	TypeUnsubscribe = "unsubscribe"
	TypeSend        = "send"
	TypeCancel      = "cancel"
	TypePing        = "ping"
)

// Subscribe asks for the events of a session: from now on, or after a cursor.
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

// Send sends a message, like POST …/messages.
type Send struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	SessionID string          `json:"sessionId"`
	Content   *string         `json:"content"`
	Role      *string         `json:"role"`
	Metadata  json.RawMessage `json:"metadata"`
	OnBusy    *string         `json:"onBusy"`
	// IdempotencyKey identifies a repeated send, like the header of that name in REST.
	IdempotencyKey *string `json:"idempotencyKey"`
}

// Cancel cancels a reply.
type Cancel struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	SessionID string `json:"sessionId"`
	MessageID string `json:"messageId"`
}

// Ping asks for a pong.
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

// Subscribed is the first frame of a subscription. Cursor is the position at which it begins. Recovered is false if some
// text or messages after the requested cursor no longer exist.
type Subscribed struct {
	Type      string `json:"type"` // "subscribed"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
	Cursor    string `json:"cursor"`
	Recovered bool   `json:"recovered"`
}

// Unsubscribed answers Unsubscribe.
type Unsubscribed struct {
	Type      string `json:"type"` // "unsubscribed"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
}

// Sent answers Send when its turn has begun. MessageID is the id of the reply. Sent precedes every event of the turn.
type Sent struct {
	Type      string `json:"type"` // "sent"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
	MessageID string `json:"messageId"`
}

// Cancelled answers Cancel after the request to the model was closed. Message is the reply in its final state.
type Cancelled struct {
	Type    string `json:"type"` // "cancelled"
	ReplyTo string `json:"replyTo,omitempty"`
	Message any    `json:"message"`
}

// Pong answers Ping.
type Pong struct {
	Type    string `json:"type"` // "pong"
	ReplyTo string `json:"replyTo,omitempty"`
}

// Draining means that the node is shutting down. A close with CloseDraining follows.
type Draining struct {
	Type             string `json:"type"` // "draining"
	ReconnectAfterMs int    `json:"reconnectAfterMs"`
}

// Error answers a request that failed. Error and Meta have the same form as in an error response of REST.
type Error struct {
	Type    string `json:"type"` // "error"
	ReplyTo string `json:"replyTo,omitempty"`
	Error   any    `json:"error"`
	Meta    any    `json:"meta"`
}
