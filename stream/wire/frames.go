package wire

import "encoding/json"

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

// CloseCode is a WebSocket close code. A new reason to close gets a code here and a text in closeReasons: 44xx
// mirrors the HTTP status of the same meaning.
type CloseCode int

// The reasons for which the server closes a socket.
const (
	CloseBinary             CloseCode = 1003 // a binary frame
	CloseInvalidUTF8        CloseCode = 1007 // a text frame that is not valid UTF-8
	CloseInvalidFrames      CloseCode = 1008 // MaxInvalidFrames invalid frames in a row
	CloseTooLarge           CloseCode = 1009 // a frame over MaxFrame
	CloseDraining           CloseCode = 1012 // the node is shutting down; reconnect
	CloseUnauthorized       CloseCode = 4401 // the key was revoked or has expired
	CloseNoHeartbeat        CloseCode = 4408 // two pings in a row without a pong
	CloseTooManyConnections CloseCode = 4429 // too many connections
)

var closeReasons = map[CloseCode]string{
	CloseBinary:             "binary frames are not supported",
	CloseInvalidUTF8:        "a text frame is not valid UTF-8",
	CloseInvalidFrames:      "too many invalid frames in a row",
	CloseTooLarge:           "the frame is too large",
	CloseDraining:           "the server is shutting down; reconnect",
	CloseUnauthorized:       "the key was revoked or has expired",
	CloseNoHeartbeat:        "no pong received for two pings",
	CloseTooManyConnections: "too many connections",
}

// Reason returns the text that is sent with the code.
func (c CloseCode) Reason() string { return closeReasons[c] }

// Limits of a connection.
const (
	MaxFrame         = 1 << 20 // bytes of a client's frame: as many as the body of a request may have
	MaxInvalidFrames = 10      // in a row; a valid frame resets the count
)
