package record

import (
	"slices"

	"parley/conversation"
	"parley/stream"
)

// These are the flags of a message. The parts follow the flag byte in the order usage, context, window, error, similarity,
// figures.
const (
	hasUsage    = 1 << iota
	isEstimated // the usage is estimated; no part follows for this flag
	hasContext
	hasError
	hasWindow     // the rest of the context: InSummary, Skipped, Summarised, SummaryFault; it precedes the error
	hasSimilarity // Similarity of the context; this newer part follows the error
	// hasFigures marks the newest part: a number n, and n numbers: Usage.Reasoning, Context.ModelTokens. A later version may append
	// further numbers.
	hasFigures
)

// otherBytes is more than most messages take without their content and metadata, in bytes.
const otherBytes = 256

// AppendMessage appends the record of m to b and returns the extended slice. The record lacks ID, SessionID, CreatedAt and Terms.
func AppendMessage(b []byte, m *conversation.Message) []byte {
	b = slices.Grow(b, len(m.Content)+len(m.Metadata)+otherBytes) // once, because the content may be large
	b = append(b, Version)
	b = appendText(b, string(m.Role))
	b = appendText(b, string(m.Status))
	b = appendText(b, m.Content)
	b = appendText(b, []byte(m.Metadata))
	b = appendText(b, m.FinishReason)
	b = appendInts(b, m.Tokens)
	flags := len(b)
	b = append(b, 0)
	if u := m.Usage; u != nil {
		b[flags] |= hasUsage
		if u.Estimated {
			b[flags] |= isEstimated
		}
		b = appendInts(b, u.Prompt, u.Completion, u.Total)
	}
	if c := m.Context; c != nil {
		b[flags] |= hasContext | hasWindow
		b = appendText(b, string(c.Policy))
		b = appendInts(b, c.PromptTokens, c.MaxTokens)
		b = appendRange(b, &c.Kept)
		b = appendRange(b, &c.Dropped)
		b = appendRange(b, &c.InSummary)
		b = appendRange(b, &c.Skipped)
		b = appendText(b, flagText(c.Summarised))
		b = appendText(b, string(c.SummaryFault))
	}
	if e := m.Error; e != nil {
		b[flags] |= hasError
		b = appendText(b, e.Code)
		b = appendText(b, e.Message)
	}
	if c := m.Context; c != nil && c.Similarity != "" {
		b[flags] |= hasSimilarity
		b = appendText(b, string(c.Similarity))
	}
	if f := figuresOf(m); f != (figures{}) {
		b[flags] |= hasFigures
		b = appendInts(appendInts(b, len(f)), f[:]...)
	}
	return b
}

// figures are the numbers of the part hasFigures.
type figures [2]int

func figuresOf(m *conversation.Message) (f figures) {
	if m.Usage != nil {
		f[0] = m.Usage.Reasoning
	}
	if m.Context != nil {
		f[1] = m.Context.ModelTokens
	}
	return f
}

// figures reads the part hasFigures into m.
func (r *reader[T]) figures(m *conversation.Message) {
	var f figures
	for i, n := 0, r.int(); i < n && !r.bad; i++ {
		if value := r.int(); i < len(f) {
			f[i] = value
		}
	}
	if m.Usage != nil {
		m.Usage.Reasoning = f[0]
	}
	if m.Context != nil {
		m.Context.ModelTokens = f[1]
	}
}

func appendRange(b []byte, r *conversation.MessageRange) []byte {
	b = appendInts(b, r.Count)
	b = appendText(b, r.First)
	return appendText(b, r.Last)
}

// ReadMessage decodes a record of AppendMessage into m. It does not change the fields of m that a record lacks. It returns
// ErrMalformed if the record is cut short or has another Version.
func ReadMessage[T string | []byte](record T, m *conversation.Message) error {
	r := reader[T]{rest: record}
	if !r.content(m) {
		return ErrMalformed
	}
	m.Metadata = r.bytes()
	r.ending(m)
	flags := r.byte()
	if flags&hasUsage != 0 {
		m.Usage = &conversation.Usage{Prompt: r.int(), Completion: r.int(), Total: r.int(), Estimated: flags&isEstimated != 0}
	}
	if flags&hasContext != 0 {
		m.Context = &conversation.ContextReport{
			Policy: r.policy(), PromptTokens: r.int(), MaxTokens: r.int(), Kept: r.messages(), Dropped: r.messages(),
		}
	}
	if flags&hasWindow != 0 && m.Context != nil {
		m.Context.InSummary, m.Context.Skipped = r.messages(), r.messages()
		m.Context.Summarised = len(r.raw()) > 0
		m.Context.SummaryFault = known(r.raw(), "", conversation.SummaryLate, conversation.SummaryFailed)
	}
	if flags&hasError != 0 {
		m.Error = &conversation.ReplyError{Code: r.text(), Message: r.text()}
	}
	if flags&hasSimilarity != 0 && m.Context != nil {
		m.Context.Similarity = known(r.raw(), conversation.ByWords, conversation.ByEmbeddings)
	}
	if flags&hasFigures != 0 {
		r.figures(m)
	}
	return r.err()
}

// ReadForPrompt reads the fields that a prompt needs. It leaves out Metadata, Usage, Context and Error.
func ReadForPrompt[T string | []byte](record T, m *conversation.Message) error {
	r := reader[T]{rest: record}
	if !r.content(m) {
		return ErrMalformed
	}
	r.raw() // the metadata
	r.ending(m)
	return r.err()
}

// content reads the fields before the metadata. It returns false if the record has another Version.
func (r *reader[T]) content(m *conversation.Message) bool {
	if r.byte() != Version {
		return false
	}
	m.Role = r.role()
	m.Status = known(r.raw(), stream.Completed, stream.Streaming, stream.Cancelled, stream.Failed, stream.Interrupted)
	m.Content = r.text()
	return true
}

// ending reads the two fields after the metadata.
func (r *reader[T]) ending(m *conversation.Message) {
	m.FinishReason = known(r.raw(), "", "stop", "length")
	m.Tokens = r.int()
}

// MessageBytes returns conversation.Message.StoredBytes of a record of AppendMessage. It does not copy the content. It returns
// ErrMalformed if the record is cut short or has another Version.
func MessageBytes[T string | []byte](record T) (int, error) {
	r := reader[T]{rest: record}
	if r.byte() != Version {
		return 0, ErrMalformed
	}
	r.raw() // the role
	r.raw() // the status
	n := len(r.raw())
	n += len(r.raw())
	return n, r.err()
}

func (r *reader[T]) role() conversation.Role {
	return known(r.raw(), conversation.User, conversation.Assistant, conversation.System)
}

func (r *reader[T]) policy() conversation.RetentionPolicy {
	return known(r.raw(), conversation.FIFO, conversation.Priority, conversation.Semantic)
}

func (r *reader[T]) messages() conversation.MessageRange {
	return conversation.MessageRange{Count: r.int(), First: r.text(), Last: r.text()}
}
