package conversation

import (
	"context"
	"encoding/json"
	"time"

	"parley/stream"
)

// Lifetime is the time from the creation of a session to its expiry. Activity does not extend it.
const Lifetime = 24 * time.Hour

// Session is a conversation with a user.
type Session struct {
	ID           string          `json:"sessionId"`
	UserID       string          `json:"userId"`
	CreatedAt    Time            `json:"createdAt"`
	ExpiresAt    Time            `json:"expiresAt"`
	LastActivity Time            `json:"lastActivity"` // equals CreatedAt before the first message
	MessageCount int             `json:"messageCount"` // messages in the history; a turn adds 2 when it begins
	TokenUsage   TokenUsage      `json:"tokenUsage"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Context      ContextConfig   `json:"contextConfig"`

	// Instructions are the first message of every prompt, with the role system; "" for none. They are in no list of messages.
	Instructions string `json:"instructions,omitempty"`
	// InstructionTokens is the number of tokens of Instructions, without overhead. It is counted when Instructions are stored.
	InstructionTokens int         `json:"instructionTokens,omitempty"`
	Model             ModelConfig `json:"modelConfig,omitzero"`

	// HistoryTokens is [TokensInPrompts] of the whole history.
	HistoryTokens int `json:"historyTokens"`
	// Head is the id of the newest message. After a clear, Head equals Cleared until the next message. "" if the
	// session never had a message or a clear.
	Head string `json:"head,omitempty"`
	// Cleared is an id that the last clear of the history created. All removed messages have smaller ids. "" if the
	// history was never cleared.
	Cleared string `json:"cleared,omitempty"`
	// LiveReply is the id of the reply that is being generated; "" if there is none.
	LiveReply string `json:"live,omitempty"`
	// LiveMessage is the id of the message that LiveReply replies to.
	LiveMessage string `json:"asked,omitempty"`
	// Fence is the fencing token. It numbers the session's turns; the store refuses a write that carries an older
	// token.
	Fence int64 `json:"fence"`
}

// End returns the position after the session's newest message.
func (s *Session) End() stream.Position {
	if s.Head == "" {
		return stream.Position{}
	}
	return stream.After(s.Head)
}

// TokenUsage is the number of tokens that a session's calls to the model have used, for replies and for summaries.
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

// DefaultContextConfig applies to sessions that are created without a configuration.
var DefaultContextConfig = ContextConfig{MaxTokens: 4096, CompressionEnabled: true, RetentionPolicy: FIFO}

// RetentionPolicy chooses the messages that stay word for word when the context window is full; see window.Plan.
type RetentionPolicy string

// The retention policies; FIFO is the default.
const (
	FIFO     RetentionPolicy = "fifo"     // keeps the newest messages
	Priority RetentionPolicy = "priority" // keeps system messages, then messages by metadata.priority
	Semantic RetentionPolicy = "semantic" // keeps the messages that are closest in meaning to the new message
)

// SessionStore keeps sessions and their histories. CreateSession, Session, UpdateSession, Context, BeginTurn and ResumeTurn return
// sessions with all fields. Other methods return short sessions (Session.Short), because instructions may have 40 KB, and nodes
// poll sessions every second.
type SessionStore interface {
	// CreateSession creates an empty session, or returns the session that an earlier request with the same Idempotency
	// created. Otherwise, it returns an *auth.QuotaError if the owner would have more sessions than the quota
	// ActiveSessions of auth.LimitsOf(ctx), or more bytes than the quota StoredBytes.
	CreateSession(ctx context.Context, owner Owner, session NewSession) (SessionCreated, error)
	// Session returns a session.
	Session(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// UpdateSession changes a session's settings and returns the session. The function change may change Metadata, Context,
	// Instructions, InstructionTokens and Model of the session that it gets, and nothing else. It may be called several times,
	// each time with a newer session, because other nodes change the session too. Its last result is stored in one operation,
	// which reads the session that change got. If change returns an error, UpdateSession changes nothing and returns it.
	// UpdateSession also returns the error of Session.CheckPolicyChange, and an *auth.QuotaError if the settings grow and do not
	// fit the quota StoredBytes. A live turn keeps the settings with which it began.
	UpdateSession(ctx context.Context, owner Owner, sessionID string, change func(*Session) error) (Session, error)
	// Sessions returns a page of the sessions that have not expired, newest first.
	Sessions(ctx context.Context, owner Owner, query SessionQuery) (SessionPage, error)
	// DeleteSession removes a session with its messages, its live turn and its queue. Each waiter is granted the
	// session and then gets ErrSessionNotFound. The text of a live turn is removed too; a later EndTurn or EndOrphans
	// settles the turn's reservation. DeleteSession also removes the idempotency keys of the session. It returns the
	// session as read before the removal.
	DeleteSession(ctx context.Context, owner Owner, sessionID string) (Session, error)
	// RemoveExpired removes expired sessions as DeleteSession does. It returns the removed sessions, and the time at
	// which the next session expires (0 if no session is left). It may also remove usage buckets that are older than
	// usage.RetentionHours hours.
	RemoveExpired(ctx context.Context) (removed []OwnedSession, next Time, err error)

	// Messages returns a page of a session's messages, with at most PageBytes, and the session. It reads the page and the
	// session at the same moment. The Content of a streaming reply is its journalled text, possibly empty.
	Messages(ctx context.Context, owner Owner, sessionID string, query MessageQuery) (MessagePage, error)
	// Message returns one message, or ErrMessageNotFound.
	Message(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error)
}

// NewSession is a request for a session. Its JSON has the fields of earlier versions, and other fields only if they are set. So
// the digest of a request is the same on nodes of two versions.
type NewSession struct {
	UserID            string
	Metadata          json.RawMessage // nil for none
	Context           ContextConfig
	Instructions      string       `json:",omitempty"`
	InstructionTokens int          `json:"-"` // nodes with different vocabularies count differently
	Model             ModelConfig  `json:",omitzero"`
	Idempotency       *Idempotency // nil for none
}

// Session returns the session that the request describes, without the fields that the store sets.
func (n *NewSession) Session() Session {
	return Session{
		UserID: n.UserID, Metadata: n.Metadata, Context: n.Context,
		Instructions: n.Instructions, InstructionTokens: n.InstructionTokens, Model: n.Model,
	}
}

// SessionCreated is the result of CreateSession. Replayed is true if an earlier request created the session.
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
	UserID string // only sessions of this user; "" for all
	Before string // only sessions with ids smaller than Before, which need not be an existing id; "" for all
	Limit  int    // at least 1
}

// SessionPage is a page of sessions. More means that further sessions follow.
type SessionPage struct {
	Sessions []Session
	More     bool
}

// MessageQuery asks for a page of messages.
type MessageQuery struct {
	// From is the id at which the page begins; the message need not exist. The page contains the message only if
	// Inclusive is set. "" begins at the oldest message if Ascending, else at the newest.
	From      string
	Inclusive bool
	Ascending bool
	Limit     int // at least 1; the page may have fewer messages, even if more follow
}

// PageBytes bounds the bytes of a page's records, because a page is in memory several times while it is sent. Three MiB
// hold the largest page of messages that are ASCII: 100 messages with 10,000 characters and 16 KiB of metadata each.
// They also hold two replies of the largest default size, with the messages to them.
const PageBytes = 3 << 20

// MessagePage is a page of messages in the order of the query. More means that further messages follow. A page has
// fewer messages than the query's limit if there are no more, or if the next record would exceed PageBytes. A page has
// at least one message, if there are any, even if that message alone exceeds PageBytes. The text of a streaming reply
// does not count, because a session has only one.
type MessagePage struct {
	Session  Session
	Messages []Message
	More     bool
}
