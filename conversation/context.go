package conversation

import (
	"context"

	"parley/conversation/window"
	"parley/stream"
)

// ContextStore reads the data for planning a window, and stores summaries and embeddings.
type ContextStore interface {
	// Context returns the Context with which a turn would begin now. tokens is the size of the new message's content, without
	// overhead. The session does not change, and the error is never *OverflowError. History includes a streaming reply with
	// its journalled text. If Index has embeddings, the caller will embed the new message. Then, if ctx carries an admission
	// (auth.Admission), Context charges tokens to the limit of tokens a minute, or returns an *auth.LimitError.
	Context(ctx context.Context, owner Owner, sessionID string, tokens int) (Context, error)
	// Summary returns a session and its summary. It reads far less than Context.
	Summary(ctx context.Context, owner Owner, sessionID string) (Session, Summary, error)
	// MessagesByID returns messages of a session in the order of ids. It leaves out messages that do not exist.
	MessagesByID(ctx context.Context, owner Owner, sessionID string, ids []string) ([]Message, error)
	// SaveSummary replaces the session's summary. after is the Last of the replaced summary; "" for none. SaveSummary
	// returns ErrStale and changes nothing in two cases: the stored summary has another Last, or summary.Last is not
	// greater than both after and Cleared. The usage counts in the session and in the owner's hour, like the usage of a
	// reply. The tokens also count in the owner's rate limit for this minute, even if they exceed the limit
	// (limit.Window.Charge).
	SaveSummary(ctx context.Context, owner Owner, sessionID, after string, summary Summary, usage Usage) error
	// SetVectors stores the embeddings of exchanges in the index and replaces existing ones. It ignores replies that
	// were cleared, sessions without the semantic policy, and sessions that are gone. Embeddings can be made again, so
	// they need not be durable when SetVectors returns.
	SetVectors(ctx context.Context, owner Owner, sessionID string, vectors []ExchangeVector) error
}

// Context is the data for planning a window. Its size is bounded, no matter how long the history is.
type Context struct {
	Session Session
	// Summary replaces the session's oldest messages; the zero value means that there is none.
	Summary Summary
	// History holds the newest messages, oldest first: as many as fit into the budget of the session's
	// window (Session.Window) and into HistoryBytes, and one more. A message that no prompt has takes window.MessageOverhead of the
	// budget, so that a session with many failed replies is not read as a whole. The messages lack the fields that no prompt needs:
	// Metadata, Usage, Context and Error.
	History []Message
	// Index holds the newest IndexLimit indexed messages, oldest first, without a streaming reply. With the policy fifo, only system
	// messages are indexed, so that a prompt keeps them when they are older than History. Index is empty unless the window must
	// choose: compression is enabled, and the history does not fit beside the new message. With the policy priority, a history
	// with a live reply counts as one that does not fit, because the text of that reply may fill the window.
	Index []Indexed
}

// HistoryBytes bounds the bytes of the records that a store reads for a Context.History. The tokens of a message do not
// bound its bytes: each message may have 16 KiB of metadata, and long runs of spaces take few tokens. Redis takes 2 ms to
// read 1 MiB. A window of 1,000,000 tokens has about 4 MiB of text, and the smallest messages with the largest metadata
// take 5 MiB in a window of 4,096 tokens. So only sessions with much metadata and a large window exceed 8 MiB. Their older
// messages then count as messages before the history.
const HistoryBytes = 8 << 20

// IndexLimit is the maximum number of messages among which a priority or semantic window chooses: 1,000 exchanges. A fifo window
// keeps at most so many system messages. The store reads the whole index when a turn begins, so its size must be bounded.
const IndexLimit = 2000

// Indexed holds the data by which a window chooses a message, without the message's content. Sessions with the fifo
// policy index only system messages.
type Indexed struct {
	ID     string
	Role   Role
	Tokens int
	// Skip marks a message that is never sent: a reply that failed or has no text. Unanswered marks a reply that failed without
	// text (Message.Unanswered). Versions before this field store such a reply with Skip alone.
	Skip, Unanswered bool
	// Priority is window.PriorityOf of the message's metadata.
	Priority float64
	// Terms are the words of the exchange. Only replies have Terms, and only in sessions with the semantic policy.
	// EndTurn stores the Terms of the reply that it gets. EndOrphans stores the terms of the reply's text alone.
	Terms window.Terms
	// Vector is the embedding of the exchange, stored by SetVectors; nil if the exchange has none. Only replies have a
	// Vector.
	Vector window.Vector
}

// Index returns the index entry of a message, for a session with this policy.
func Index(m *Message, policy RetentionPolicy) Indexed {
	x := Outline(m)
	x.Priority = window.PriorityOf(m.Metadata)
	if policy == Semantic {
		x.Terms = m.Terms
	}
	return x
}

// Outline returns the index entry of a message without Priority, Terms and Vector. So it does not decode the metadata.
func Outline(m *Message) Indexed {
	return Indexed{ID: m.ID, Role: m.Role, Tokens: m.Tokens, Skip: m.neverSent(), Unanswered: m.Unanswered()}
}

// ExchangeVector is the embedding of an exchange.
type ExchangeVector struct {
	Reply  string // id of the reply that ends the exchange
	Vector window.Vector
}

// Summary replaces the messages of a session from the first message to the message with the id Last. The zero value
// means that there is none.
type Summary struct {
	Text   string // with its heading, as the model gets it
	Tokens int    // number of tokens of Text
	Last   string // id of the last message that it covers
	Count  int    // number of messages that it covers
	// Replaced is the number of prompt tokens that the summary replaced: the tokens of the previous summary, plus the
	// tokens of the newly covered messages.
	Replaced int
}

// Weighed returns the summary in the form that package window takes, with the message overhead in its tokens.
func (s *Summary) Weighed() window.Summary {
	if s.Last == "" {
		return window.Summary{}
	}
	return window.Summary{Tokens: s.Tokens + window.MessageOverhead, Last: s.Last, Count: s.Count}
}

// Stats returns the figures that viewers see for a summary. added is the number of messages that the summary covers and
// the previous summary did not.
func (s *Summary) Stats(added int) stream.SummaryStats {
	return stream.SummaryStats{Summarised: added, TokensBefore: s.Replaced, TokensAfter: s.Weighed().Tokens}
}

// ContextReport describes how a reply's prompt was built.
type ContextReport struct {
	Policy       RetentionPolicy `json:"policy"`
	PromptTokens int             `json:"promptTokens"` // for a reply that failed with CodeContextOverflow: of the prompt that did not fit
	MaxTokens    int             `json:"maxTokens"`
	// ModelTokens is the size of the model's context in our tokens; 0 if it is unknown.
	ModelTokens int `json:"modelTokens,omitempty"`
	// Each message of the session, including the new message, counts in exactly one of the next four fields. Kept: sent
	// word for word. InSummary: covered by the summary that was sent. Dropped: neither sent nor in a summary that was sent.
	// Skipped: never sent, because the reply failed or has no text, or because the message got no reply (Message.Unanswered).
	Kept      MessageRange `json:"kept"`
	InSummary MessageRange `json:"folded"`
	Dropped   MessageRange `json:"dropped"`
	Skipped   MessageRange `json:"skipped"`
	// Summarised is true if the prompt has a summary.
	Summarised bool `json:"summarised"`
	// Similarity is the method by which the window compared messages with the new message; "" if it compared none.
	Similarity Similarity `json:"similarity,omitempty"`
	// SummaryFault is the reason why the summary lacks messages that it should cover; "" if it lacks none.
	SummaryFault SummaryFault `json:"folding,omitempty"`
}

// Window returns the size of the window for which the prompt was planned: MaxTokens, or ModelTokens if the model's context is
// smaller.
func (r *ContextReport) Window() int {
	if r.ModelTokens > 0 && r.ModelTokens < r.MaxTokens {
		return r.ModelTokens
	}
	return r.MaxTokens
}

// MessageRange counts messages, with the ids of the first and the last. First is "" if the range begins before the
// messages that the turn read.
type MessageRange struct {
	Count int    `json:"count"`
	First string `json:"first,omitempty"`
	Last  string `json:"last,omitempty"`
}

// Similarity is the method by which a semantic window compares messages with the new message.
type Similarity string

// ByWords compares words (BM25). ByEmbeddings also compares embeddings, for exchanges that have an embedding.
const (
	ByWords      Similarity = "words"
	ByEmbeddings Similarity = "embeddings"
)

// SummaryFault is the reason why a turn continued without the summary that it needed.
type SummaryFault string

// The faults. Late: the summary was not ready in time. Failed: the model or the store failed.
const (
	SummaryLate   SummaryFault = "late"
	SummaryFailed SummaryFault = "failed"
)

// Preview shows the prompt that a message would get if it were sent now.
type Preview struct {
	Context ContextReport `json:"context"`
	// Summary is the text of the summary in the prompt; "" if the prompt has none.
	Summary string `json:"summary,omitempty"`
	// Messages are the messages that the window considered, oldest first. The last entry is the new message; it has no
	// id.
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
