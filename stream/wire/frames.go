package wire

import "encoding/json"

// Here are the frames of requests and of their responses. The frames of events, deltas included, are written in events.go.

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

// Send sends a message, as POST …/messages does.
type Send struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	SessionID string          `json:"sessionId"`
	Content   *string         `json:"content"`
	Role      *string         `json:"role"`
	Metadata  json.RawMessage `json:"metadata"`
	OnBusy    *string         `json:"onBusy"`
	// IdempotencyKey makes a repeated send recognisable, like the header of that name in REST.
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

// Subscribed is the first frame of a subscription. Cursor is where it begins. Recovered is false if some of what
// followed the requested cursor no longer exists.
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

// Sent answers Send when its turn has begun. MessageID is that of the reply. It precedes every event of the turn.
type Sent struct {
	Type      string `json:"type"` // "sent"
	ReplyTo   string `json:"replyTo,omitempty"`
	SessionID string `json:"sessionId"`
	MessageID string `json:"messageId"`
}

// Cancelled answers Cancel when the model's request is closed. Message is the reply as it ended.
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

// Error answers a request that failed. Error and Meta are those of the error body in REST.
type Error struct {
	Type    string `json:"type"` // "error"
	ReplyTo string `json:"replyTo,omitempty"`
	Error   any    `json:"error"`
	Meta    any    `json:"meta"`
}
