package conversation

import (
	"context"
	"encoding/json"
	"time"

	"parley/stream"
)

// Lifetime is how long a session lives from its creation. Activity does not extend it.
const Lifetime = 24 * time.Hour

// Session is a conversation with a user.
type Session struct {
	ID           string          `json:"sessionId"`
	UserID       string          `json:"userId"`
	CreatedAt    Time            `json:"createdAt"`
	ExpiresAt    Time            `json:"expiresAt"`
	LastActivity Time            `json:"lastActivity"` // CreatedAt before the first message
	MessageCount int             `json:"messageCount"` // grows by 2 when a turn begins
	TokenUsage   TokenUsage      `json:"tokenUsage"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Context      ContextConfig   `json:"contextConfig"`

	// HistoryTokens is the sum of [Message.TokensInPrompt] over the whole history.
	HistoryTokens int `json:"historyTokens"`
	// Head is the id of the newest message, or Cleared if that is newer; "" before the first.
	Head string `json:"head,omitempty"`
	// Cleared is an id that was made when the history was last cleared: the removed messages have smaller ids. "" if the
	// history was never cleared.
	Cleared string `json:"cleared,omitempty"`
	// LiveReply is the reply that is being written; "" while the session is free.
	LiveReply string `json:"live,omitempty"`
	// LiveMessage is the message that LiveReply replies to.
	LiveMessage string `json:"asked,omitempty"`
	// Fence is the fencing token: it numbers the session's turns, and a write that carries an older one is refused.
	Fence int64 `json:"fence"`
}

// End returns the position after the session's newest message.
func (s *Session) End() stream.Position {
	if s.Head == "" {
		return stream.Position{}
	}
	return stream.After(s.Head)
}

// TokenUsage is what the calls to the model for a session have used: for replies and for summaries.
type TokenUsage struct {
	Total      int `json:"total"`
	Prompt     int `json:"prompt"`
	Completion int `json:"completion"`
}

// ContextConfig configures a session's context window.
type ContextConfig struct {
	MaxTokens          int             `json:"maxTokens"`
	CompressionEnabled bool            `json:"compressionEnabled"`
	RetentionPolicy    RetentionPolicy `json:"retentionPolicy"`
}

// DefaultContextConfig applies where a session names nothing else.
var DefaultContextConfig = ContextConfig{MaxTokens: 4096, CompressionEnabled: true, RetentionPolicy: FIFO}

// RetentionPolicy says which messages stay word for word when the context window is full; see window.Plan.
type RetentionPolicy string

// The retention policies; FIFO is the default.
const (
	FIFO     RetentionPolicy = "fifo"     // the newest
	Priority RetentionPolicy = "priority" // system messages, then by metadata.priority
	Semantic RetentionPolicy = "semantic" // the nearest in meaning to the new message
)

// SessionStore keeps sessions and their histories.
type SessionStore interface {
	// CreateSession makes an empty session, or returns the one that the same request made before.
	CreateSession(ctx context.Context, owner Owner, session NewSession) (SessionCreated, error)
	// Session returns a session.
	Session(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// Sessions returns a page of the sessions that have not expired, newest first.
	Sessions(ctx context.Context, owner Owner, query SessionQuery) (SessionPage, error)
	// DeleteSession removes a session with all its messages, its live turn and its queue: the waiters are granted the
	// session and find it gone. Usage that a live turn has reserved is settled later, by EndTurn or EndOrphans; none of the
	// turn's text remains. It returns the session as it was.
	DeleteSession(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// RemoveExpired removes expired sessions as DeleteSession does. It returns them, and when the next one will expire (0
	// for none). It may also remove usage buckets that are older than usage.RetentionHours hours.
	RemoveExpired(ctx context.Context) (removed []OwnedSession, next Time, err error)

	// Messages returns a page of a session's messages, and the session as it was in the same moment. The Content of a
	// streaming reply is its journalled text, possibly empty.
	Messages(ctx context.Context, owner Owner, sessionID string, query MessageQuery) (MessagePage, error)
	// Message returns one message, or ErrMessageNotFound.
	Message(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
}

// NewSession is a request for a session.
type NewSession struct {
	UserID      string
	Metadata    json.RawMessage // nil for none
	Context     ContextConfig
	Idempotency *Idempotency // nil for none
}

// SessionCreated is a new session, or, if Replayed, the one that the same request made before.
type SessionCreated struct {
	Session  Session
	Replayed bool
}

// OwnedSession is a session and its owner.
type OwnedSession struct {
	Owner   Owner
	Session Session
}

// SessionQuery asks for a page of sessions.
type SessionQuery struct {
	UserID string // only this user's; "" for all
	Before string // only sessions with smaller ids; it need not exist; "" for all
	Limit  int    // at least 1
}

// SessionPage is a page of sessions. More says that there are further ones.
type SessionPage struct {
	Sessions []Session
	More     bool
}

// MessageQuery asks for a page of messages.
type MessageQuery struct {
	// From is the message where the page begins. It need not exist, and is left out unless Inclusive. "" is the oldest if
	// Ascending, else the newest.
	From      string
	Inclusive bool
	Ascending bool
	Limit     int // at least 1
}

// MessagePage is a page of messages in the order of the query. More says that there are further ones.
type MessagePage struct {
	Session  Session
	Messages []Message
	More     bool
}
