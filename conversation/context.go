package conversation

import (
	"context"

	"parley/conversation/window"
	"parley/stream"
)

// ContextStore reads the data that a window is planned from, and stores summaries and embeddings.
type ContextStore interface {
	// Context returns the context that a turn would begin with. tokens is the size of the new message's content, without
	// overhead. It changes nothing and never returns *OverflowError. History includes a streaming reply with its
	// journalled text.
	Context(ctx context.Context, owner Owner, sessionID string, tokens int) (Context, error)
	// MessagesByID returns messages of a session in the order of ids. It leaves out messages that do not exist.
	MessagesByID(ctx context.Context, owner Owner, sessionID string, ids []string) ([]Message, error)
	// SaveSummary replaces the session's summary. It returns ErrStale and changes nothing unless the stored summary ends
	// with the message after ("" for no summary), and summary.Last is above both after and Cleared. The usage counts like
	// a reply's, in the session and in the owner's hour. It is charged to the owner's tokens of this minute, which may
	// exceed the rate limit (limit.Window.Charge).
	SaveSummary(ctx context.Context, owner Owner, sessionID, after string, summary Summary, usage Usage) error
	// SetVectors stores the embeddings of exchanges in the index and replaces existing ones. It ignores replies that were
	// cleared, sessions whose policy is not semantic, and sessions that are gone. Embeddings can be made again, so they
	// need not be durable when it returns.
	SetVectors(ctx context.Context, owner Owner, sessionID string, vectors []ExchangeVector) error
}

// Context is the data that a window is planned from. Its size is bounded, no matter how long the history is.
type Context struct {
	Session Session
	// Summary replaces the session's oldest messages; the zero value means that there is none.
	Summary Summary
	// History holds the newest messages, oldest first: those that fit into the window.Budget of the session's
	// configuration, and one more.
	History []Message
	// Index holds the newest IndexLimit messages, oldest first, if the window must choose among them. That is so if the
	// policy is priority or semantic, compression is enabled, and the history does not fit beside the new message.
	// Otherwise it is empty. It never holds a streaming reply.
	Index []Indexed
}

// IndexLimit is the number of messages that a priority or semantic window chooses from: 1,000 exchanges. The store reads
// the whole index when a turn begins.
const IndexLimit = 2000

// Indexed holds what the window must know to choose a message, without its content. Sessions with the fifo policy need no
// index.
type Indexed struct {
	ID     string
	Role   Role
	Tokens int
	// Skip marks a message that is never sent: a reply that failed or has no text.
	Skip bool
	// Priority is window.PriorityOf of the message's metadata.
	Priority float64
	// Terms are the words of the exchange, on its reply. EndTurn stores the terms that it gets with the reply. EndOrphans
	// stores those of the reply's text alone. Only sessions with the semantic policy have them.
	Terms window.Terms
	// Vector is the embedding of the exchange, on its reply, stored by SetVectors; nil if there is none.
	Vector window.Vector
}

// Index returns the index entry of a message, for a session with that policy.
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

// Summary replaces the messages of a session from the first to Last. The zero value means that there is none.
type Summary struct {
	Text   string // in the form that the model gets, with its heading
	Tokens int    // of Text
	Last   string // id of the last message that it covers
	Count  int    // number of messages that it covers
	// Replaced is the number of prompt tokens that it replaced: those of the previous summary and of the messages that it
	// added.
	Replaced int
}

// Weighed returns the summary in the form that package window takes, with the message overhead in its tokens.
func (s *Summary) Weighed() window.Summary {
	if s.Last == "" {
		return window.Summary{}
	}
	return window.Summary{Tokens: s.Tokens + window.MessageOverhead, Last: s.Last, Count: s.Count}
}

// Stats returns the figures that viewers see for a summary. added is the number of messages that it covers and the
// previous summary did not.
func (s *Summary) Stats(added int) stream.SummaryStats {
	return stream.SummaryStats{Summarised: added, TokensBefore: s.Replaced, TokensAfter: s.Weighed().Tokens}
}

// ContextReport describes how a reply's prompt was built.
type ContextReport struct {
	Policy       RetentionPolicy `json:"policy"`
	PromptTokens int             `json:"promptTokens"`
	MaxTokens    int             `json:"maxTokens"`
	// Each message of the session, including the new one, counts in exactly one of these four. Kept: sent word for word.
	// InSummary: covered by the summary that was sent. Dropped: left out without a trace. Skipped: never sent, because
	// the reply failed or has no text.
	Kept      MessageRange `json:"kept"`
	InSummary MessageRange `json:"folded"`
	Dropped   MessageRange `json:"dropped"`
	Skipped   MessageRange `json:"skipped"`
	// Summarised is true if the prompt has a summary.
	Summarised bool `json:"summarised"`
	// Similarity is the method by which a semantic window compared messages with the new one; "" if everything fitted.
	Similarity Similarity `json:"similarity,omitempty"`
	// SummaryFault is the reason why the summary lacks messages that it should cover; "" if it lacks none.
	SummaryFault SummaryFault `json:"folding,omitempty"`
}

// MessageRange counts messages, with the ids of the first and the last. First is "" if the range begins before the
// messages that the turn read.
type MessageRange struct {
	Count int    `json:"count"`
	First string `json:"first,omitempty"`
	Last  string `json:"last,omitempty"`
}

// Similarity is the method by which messages are compared.
type Similarity string

// ByWords compares words (BM25). ByEmbeddings also compares the embeddings of the exchanges that have one.
const (
	ByWords      Similarity = "words"
	ByEmbeddings Similarity = "embeddings"
)

// SummaryFault is the reason why a turn went on without the summary that it needed.
type SummaryFault string

// The faults. Late: the summary was not ready in time. Failed: the model or the store failed.
const (
	SummaryLate   SummaryFault = "late"
	SummaryFailed SummaryFault = "failed"
)

// Preview shows the prompt that a message would get if it were sent now.
type Preview struct {
	Context ContextReport `json:"context"`
	// Summary is the text of the summary in the prompt; "" if it has none.
	Summary string `json:"summary,omitempty"`
	// Messages are the messages that the window considered, oldest first. The last one is the new message; it has no id.
	Messages []PreviewMessage `json:"messages"`
}

// PreviewMessage is a message that the window considered, with the decision about it.
type PreviewMessage struct {
	ID       string `json:"messageId,omitempty"`
	Role     Role   `json:"role"`
	Tokens   int    `json:"tokens"`   // with window.MessageOverhead
	Decision string `json:"decision"` // a window.Verdict
	Reason   string `json:"reason"`   // a window.Reason
}
