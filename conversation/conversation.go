// Package conversation holds sessions, their messages, and the turn: a user's message and the reply to it, from its
// beginning to its settlement (design section 3). It knows no HTTP and no store: what it needs of a store it declares
// in [Store], and what viewers see it publishes to a [stream.Hub].
package conversation

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"parley/conversation/window"
	"parley/stream"
)

// Lifetime is how long a session lives from its creation; activity does not extend it (spec: Limits).
const Lifetime = 24 * time.Hour

// Mode separates production data from that of development keys.
type Mode string

// The two modes, as in the prefixes of keys.
const (
	Live Mode = "live"
	Test Mode = "test"
)

// Owner is whose data is meant: an account in a mode. Every call to the store names one, so what belongs to another
// owner cannot be reached, only missed.
type Owner struct {
	Account string
	Mode    Mode
}

// Time is a moment in milliseconds since 1970, UTC; in JSON it is ISO 8601 with milliseconds and Z.
type Time int64

const timeLayout = "2006-01-02T15:04:05.000Z"

// TimeOf returns t, cut to the millisecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Go returns t as a time.Time.
func (t Time) Go() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t and d.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

func (t Time) String() string { return t.Go().Format(timeLayout) }

// MarshalJSON writes t as an ISO 8601 string.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.Go().AppendFormat(make([]byte, 0, len(timeLayout)+2), `"`+timeLayout+`"`), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Time) UnmarshalJSON(b []byte) error {
	parsed, err := time.Parse(`"`+timeLayout+`"`, string(b))
	if err != nil {
		return fmt.Errorf("not a time: %w", err)
	}
	*t = TimeOf(parsed)
	return nil
}

// RetentionPolicy says which messages stay in a full context window word for word (design section 5).
type RetentionPolicy string

// The retention policies; FIFO is the default.
const (
	FIFO     RetentionPolicy = "fifo"
	Priority RetentionPolicy = "priority"
	Semantic RetentionPolicy = "semantic"
)

// ContextConfig is the configuration of a session's context window (spec: Context configuration).
type ContextConfig struct {
	MaxTokens          int             `json:"maxTokens"`
	CompressionEnabled bool            `json:"compressionEnabled"`
	RetentionPolicy    RetentionPolicy `json:"retentionPolicy"`
}

// DefaultContextConfig is what a session has that names nothing else.
var DefaultContextConfig = ContextConfig{MaxTokens: 4096, CompressionEnabled: true, RetentionPolicy: FIFO}

// TokenUsage is what the calls to the model for a session have cost (design section 2, accounting).
type TokenUsage struct {
	Total      int `json:"total"`
	Prompt     int `json:"prompt"`
	Completion int `json:"completion"`
}

// Session is a conversation with a user (spec: Session).
type Session struct {
	ID           string          `json:"sessionId"`
	UserID       string          `json:"userId"`
	CreatedAt    Time            `json:"createdAt"`
	ExpiresAt    Time            `json:"expiresAt"`
	LastActivity Time            `json:"lastActivity"`
	MessageCount int             `json:"messageCount"`
	TokenUsage   TokenUsage      `json:"tokenUsage"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Context      ContextConfig   `json:"contextConfig"`

	// HistoryTokens is what the whole history takes in a prompt: the Tokens of each message and
	// window.MessageOverhead, but for replies that are streaming, failed or have no text.
	HistoryTokens int `json:"historyTokens"`
	// Head is the id of the newest message, or Cleared if that is newer; "" before the first.
	Head string `json:"head,omitempty"`
	// Cleared is an id that was made when the history was last cleared: what was removed lies before it. "" if it never
	// was.
	Cleared string `json:"cleared,omitempty"`
	// LiveReply is the reply that is being written; "" while the session is free.
	LiveReply string `json:"live,omitempty"`
	// LiveMessage is the message that Live answers.
	LiveMessage string `json:"asked,omitempty"`
	// Fence numbers the session's turns; a write that carries an older one is refused.
	Fence int64 `json:"fence"`
}

// Role is who speaks.
type Role string

// The roles of messages.
const (
	User      Role = "user"
	System    Role = "system"
	Assistant Role = "assistant"
)

// Usage is what one reply cost. Estimated says that the counts are ours, for want of the provider's.
type Usage struct {
	Prompt     int  `json:"prompt"`
	Completion int  `json:"completion"`
	Total      int  `json:"total"`
	Estimated  bool `json:"estimated"`
}

// Message is one message of a session (spec: Message; the additions are those of design section 2). It is never
// changed once it is stored, but for a reply that ends.
type Message struct {
	ID        string          `json:"messageId"`
	SessionID string          `json:"sessionId"`
	Role      Role            `json:"role"`
	Content   string          `json:"content"`
	Tokens    int             `json:"tokens"`
	CreatedAt Time            `json:"createdAt"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Status    stream.State    `json:"status"`
	// Usage, FinishReason, Context and Error are those of replies.
	Usage        *Usage         `json:"usage,omitempty"`
	FinishReason string         `json:"finishReason,omitempty"`
	Context      *ContextReport `json:"context,omitempty"`
	Error        *ReplyError    `json:"error,omitempty"`
	// Terms goes with a reply to EndTurn, where the session's policy is semantic: what it and the message that it answers
	// are about. Messages that are read have none; see Indexed.
	Terms window.Terms `json:"-"`
}

// TokensInPrompt returns what a message takes in a prompt: its Tokens and window.MessageOverhead; 0 if it is never sent. A
// reply that is streaming counts for the Content and Tokens that are there: one whose text is not known yet has none.
func (m *Message) TokensInPrompt() int {
	if m.neverSent() {
		return 0
	}
	return m.Tokens + window.MessageOverhead
}

// neverSent reports whether a message is left out of every prompt: a reply that failed, or has no text.
func (m *Message) neverSent() bool {
	return m.Role == Assistant && (m.Status == stream.Failed || m.Content == "")
}

// ReplyError says why a reply failed.
type ReplyError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ContextReport says what a reply was built from (design section 5).
type ContextReport struct {
	Policy       RetentionPolicy `json:"policy"`
	PromptTokens int             `json:"promptTokens"`
	MaxTokens    int             `json:"maxTokens"`
	// Each message of the session, the new one among them, is counted in exactly one of these: it was sent word for word,
	// was in the summary that was sent, was left out with no trace, or is never sent (a reply that failed or has no text).
	Kept      MessageRange `json:"kept"`
	InSummary MessageRange `json:"folded"`
	Dropped   MessageRange `json:"dropped"`
	Skipped   MessageRange `json:"skipped"`
	// Summarised says that a summary was sent.
	Summarised bool `json:"summarised"`
	// Similarity says how a semantic window that had to choose compared messages with the new one; "" for any other.
	Similarity Similarity `json:"similarity,omitempty"`
	// SummaryFault says why messages that should have been in the summary are not; "" if all is well.
	SummaryFault SummaryFault `json:"folding,omitempty"`
}

// Similarity is how messages are compared (design section 5, semantic).
type Similarity string

// By words alone, or by these and the vectors of an embedding model, as far as messages have one.
const (
	ByWords      Similarity = "words"
	ByEmbeddings Similarity = "embeddings"
)

// SummaryFault says why a turn went on without a summary that it should have had (design section 5).
type SummaryFault string

// What can keep messages out of the summary: the model took too long, or failed.
const (
	SummaryLate   SummaryFault = "late"
	SummaryFailed SummaryFault = "failed"
)

// MessageRange is a number of messages and the first and last of them; First is "" where it was not looked up.
type MessageRange struct {
	Count int    `json:"count"`
	First string `json:"first,omitempty"`
	Last  string `json:"last,omitempty"`
}

// The errors that callers can tell apart. Stores return them too, wrapped or not.
var (
	ErrSessionNotFound = errors.New("the session does not exist or has expired")
	ErrMessageNotFound = errors.New("the message does not exist")
	ErrSessionBusy     = errors.New("the session is busy with another message")
	// ErrIdempotencyConflict says that an Idempotency-Key was used before, for something else.
	ErrIdempotencyConflict = errors.New("the idempotency key was used for another request")
	// ErrFenced says that a turn was ended by somebody else.
	ErrFenced = errors.New("the turn was already ended")
	// ErrStale says that a summary was made of what is no longer there: another was first, or the history was cleared.
	ErrStale = errors.New("the summary is out of date")
	// ErrUnavailable says that the store cannot be reached or cannot write.
	ErrUnavailable = errors.New("the service is unavailable")
	// ErrDraining is ErrUnavailable where the reason is that this server is going away.
	ErrDraining = fmt.Errorf("%w: the server is going away", ErrUnavailable)
	// ErrCancelPending says that a cancel is wanted, but the model's request was not closed in time.
	ErrCancelPending = errors.New("the reply has not stopped yet")
)

// OverflowError says that the context window cannot hold a message (spec: 413 context_overflow). CurrentTokens is the
// prompt and the room kept for the reply.
type OverflowError struct {
	CurrentTokens, MaxTokens int
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("the context window is exceeded: %d tokens of %d", e.CurrentTokens, e.MaxTokens)
}
