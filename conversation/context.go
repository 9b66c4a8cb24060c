package conversation

import (
	"context"

	"parley/conversation/window"
	"parley/stream"
)

// ContextStore reads what windows are planned from, and keeps summaries and embeddings.
type ContextStore interface {
	// Context returns what a turn would begin with, for a message of so many tokens, overhead not included. It changes
	// nothing and refuses no overflow. The History includes a streaming reply with its journalled text.
	Context(ctx context.Context, owner Owner, sessionID string, tokens int) (Context, error)
	// MessagesByID returns messages of a session in the order of ids. It leaves out those that do not exist.
	MessagesByID(ctx context.Context, owner Owner, sessionID string, ids []string) ([]Message, error)
	// SaveSummary replaces the session's summary, if that still ends with the message after ("" for no summary) and
	// summary.Last is above both after and Cleared. Otherwise it changes nothing and returns ErrStale. The usage is counted
	// like a reply's, in the session and in the owner's hour, and charged to the owner's tokens of this minute, which may
	// overshoot (limit.Window.Charge).
	SaveSummary(ctx context.Context, owner Owner, sessionID, after string, summary Summary, usage Usage) error
	// SetVectors keeps the embeddings of exchanges in the index, each in place of an older one. It ignores replies that are
	// not in the index: they were cleared, the session's policy is not semantic, or the session is gone. Vectors can be made
	// again, so they need not be durable when it returns.
	SetVectors(ctx context.Context, owner Owner, sessionID string, vectors []ExchangeVector) error
}

// Context is what a window is planned from. Its size is bounded, however long the history is.
type Context struct {
	Session Session
	// Summary stands for the session's oldest messages; the zero value is none.
	Summary Summary
	// History holds the newest messages, oldest first: as many as window.Budget of the session's configuration can hold, and
	// the next older one.
	History []Message
	// Index holds the newest IndexLimit messages, oldest first, if the window has to choose among them: the policy is
	// priority or semantic, compression is enabled, and the history does not fit beside the new message. Otherwise it is
	// empty. It never holds a streaming reply.
	Index []Indexed
}

// IndexLimit is how many messages a priority or semantic window chooses from: 1,000 exchanges, which the store returns with
// the beginning of the turn.
const IndexLimit = 2000

// Indexed is a message as the window weighs it, without its content. Sessions whose policy is fifo need no index.
type Indexed struct {
	ID     string
	Role   Role
	Tokens int
	// Skip says that the message is never sent: a reply that failed or has no text.
	Skip bool
	// Priority is window.PriorityOf of the metadata.
	Priority float64
	// Terms are those that EndTurn was given with a reply, or, after EndOrphans, those of the reply's text. Only sessions
	// whose policy is semantic have them.
	Terms window.Terms
	// Vector is the embedding that SetVectors was given for a reply; nil for none.
	Vector window.Vector
}

// Index returns a message as a session with that policy indexes it.
func Index(m *Message, policy RetentionPolicy) Indexed {
	x := Indexed{ID: m.ID, Role: m.Role, Tokens: m.Tokens, Skip: m.neverSent(), Priority: window.PriorityOf(m.Metadata)}
	if policy == Semantic {
		x.Terms = m.Terms
	}
	return x
}

// ExchangeVector is the embedding of an exchange.
type ExchangeVector struct {
	Reply  string // id of the reply that ends the exchange
	Vector window.Vector
}

// Summary stands for the messages of a session from the first to Last. The zero value is none.
type Summary struct {
	Text   string // as it is sent, with its heading
	Tokens int    // of Text
	Last   string // id of the last message that it covers
	Count  int    // messages that it covers
	// Replaced is how many tokens of a prompt it replaced: the summary before it, and the messages that were new in it.
	Replaced int
}

// Weighed returns a summary as the window weighs it.
func (s *Summary) Weighed() window.Summary {
	if s.Last == "" {
		return window.Summary{}
	}
	return window.Summary{Tokens: s.Tokens + window.MessageOverhead, Last: s.Last, Count: s.Count}
}

// Stats returns what viewers are shown of a summary that covers so many messages more than the one before.
func (s *Summary) Stats(added int) stream.SummaryStats {
	return stream.SummaryStats{Summarised: added, TokensBefore: s.Replaced, TokensAfter: s.Weighed().Tokens}
}

// ContextReport says what a reply's prompt was built from.
type ContextReport struct {
	Policy       RetentionPolicy `json:"policy"`
	PromptTokens int             `json:"promptTokens"`
	MaxTokens    int             `json:"maxTokens"`
	// Each message of the session, the new one included, counts in exactly one of these. Kept: sent word for word. InSummary:
	// covered by the summary that was sent. Dropped: left out without a trace. Skipped: never sent, because the reply failed
	// or has no text.
	Kept      MessageRange `json:"kept"`
	InSummary MessageRange `json:"folded"`
	Dropped   MessageRange `json:"dropped"`
	Skipped   MessageRange `json:"skipped"`
	// Summarised says that a summary was sent.
	Summarised bool `json:"summarised"`
	// Similarity says how a semantic window compared messages with the new one; "" if it did not have to choose.
	Similarity Similarity `json:"similarity,omitempty"`
	// SummaryFault says why the summary lacks messages that it should cover; "" if it lacks none.
	SummaryFault SummaryFault `json:"folding,omitempty"`
}

// MessageRange is a number of messages with the first and the last of them. First is "" if it was not read.
type MessageRange struct {
	Count int    `json:"count"`
	First string `json:"first,omitempty"`
	Last  string `json:"last,omitempty"`
}

// Similarity is how messages are compared.
type Similarity string

// ByWords compares words (BM25). ByEmbeddings adds embeddings, for the exchanges that have one.
const (
	ByWords      Similarity = "words"
	ByEmbeddings Similarity = "embeddings"
)

// SummaryFault says why a turn went on without the summary that it needed.
type SummaryFault string

// The faults: the summary took too long, or the model or the store failed.
const (
	SummaryLate   SummaryFault = "late"
	SummaryFailed SummaryFault = "failed"
)

// Preview says what a message's prompt would be built from if it were sent now.
type Preview struct {
	Context ContextReport `json:"context"`
	// Summary is the summary that would be sent; "" for none.
	Summary string `json:"summary,omitempty"`
	// Messages are those that the window considered, oldest first. The new message is the last; it has no id.
	Messages []PreviewMessage `json:"messages"`
}

// PreviewMessage is a message that the window considered, and what would become of it.
type PreviewMessage struct {
	ID       string `json:"messageId,omitempty"`
	Role     Role   `json:"role"`
	Tokens   int    `json:"tokens"`   // with window.MessageOverhead
	Decision string `json:"decision"` // a window.Verdict
	Reason   string `json:"reason"`   // a window.Reason
}
