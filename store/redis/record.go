package redis

import (
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"

	"parley/conversation"
	"parley/stream"
)

// A message is kept as lua/session.lua says: id, NUL, tokens in a prompt, createdAt, and this record, which scripts do not
// look into. A turn reads back as many messages as its window holds, so reading one must be cheap: a record is its version
// (1), then the fields in their order, texts with their length before them, numbers as varints. The version 0 is a reply
// that is streaming, and what is journalled of it.
const (
	recordStreaming = 0
	recordVersion   = 1

	idLength   = len(conversation.MessagePrefix) + 16
	headLength = idLength + 1 + 4 + 8
)

// The parts that a message may have, in their order.
const (
	hasUsage = 1 << iota
	isEstimated
	hasContext
	hasError
	hasWindow     // more of the context
	hasSimilarity // the last of it, behind the error: who does not know it reads all the rest
)

// appendMessage writes the record of a message.
func appendMessage(b []byte, m *conversation.Message) []byte {
	b = append(b, recordVersion)
	b = appendText(b, string(m.Role))
	b = appendText(b, string(m.Status))
	b = appendText(b, m.Content)
	b = appendText(b, string(m.Metadata))
	b = appendText(b, m.FinishReason)
	b = binary.AppendVarint(b, int64(m.Tokens))
	has := len(b)
	b = append(b, 0)
	if u := m.Usage; u != nil {
		b[has] |= hasUsage
		if u.Estimated {
			b[has] |= isEstimated
		}
		b = appendInts(b, u.Prompt, u.Completion, u.Total)
	}
	if c := m.Context; c != nil {
		b[has] |= hasContext
		b = appendText(b, string(c.Policy))
		b = appendInts(b, c.PromptTokens, c.MaxTokens)
		for _, r := range []*conversation.MessageRange{&c.Kept, &c.Dropped} {
			b = appendInts(b, r.Count)
			b = appendText(appendText(b, r.First), r.Last)
		}
		b[has] |= hasWindow
		for _, r := range []*conversation.MessageRange{&c.InSummary, &c.Skipped} {
			b = appendInts(b, r.Count)
			b = appendText(appendText(b, r.First), r.Last)
		}
		b = appendText(appendText(b, flag(c.Summarised)), string(c.SummaryFault))
	}
	if e := m.Error; e != nil {
		b[has] |= hasError
		b = appendText(appendText(b, e.Code), e.Message)
	}
	if c := m.Context; c != nil && c.Similarity != "" {
		b[has] |= hasSimilarity
		b = appendText(b, string(c.Similarity))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendInts(b []byte, all ...int) []byte {
	for _, n := range all {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

// readMember reads a message of a session as scripts return it.
func readMember(sessionID, member string) (conversation.Message, error) {
	if len(member) <= headLength {
		return conversation.Message{}, errRecord
	}
	m := conversation.Message{
		ID: member[:idLength], SessionID: sessionID,
		CreatedAt: conversation.Time(binary.LittleEndian.Uint64([]byte(member[headLength-8 : headLength]))),
	}
	switch record := member[headLength:]; record[0] {
	case recordStreaming:
		m.Role, m.Status, m.Content = conversation.Assistant, stream.Streaming, validPrefix(record[1:])
		return m, nil
	case recordVersion:
		return m, readMessage(record[1:], &m)
	}
	return conversation.Message{}, errRecord // of a later version
}

// readMessage reads what appendMessage wrote after the version.
func readMessage(record string, m *conversation.Message) error {
	r := reader{rest: record}
	m.Role, m.Status = conversation.Role(r.text()), stream.State(r.text())
	m.Content = r.text()
	if metadata := r.text(); metadata != "" {
		m.Metadata = json.RawMessage(metadata)
	}
	m.FinishReason = r.text()
	m.Tokens = r.int()
	has := r.byte()
	if has&hasUsage != 0 {
		m.Usage = &conversation.Usage{Prompt: r.int(), Completion: r.int(), Total: r.int(), Estimated: has&isEstimated != 0}
	}
	if has&hasContext != 0 {
		m.Context = &conversation.ContextReport{
			Policy: conversation.RetentionPolicy(r.text()), PromptTokens: r.int(), MaxTokens: r.int(), Kept: r.messages(), Dropped: r.messages(),
		}
	}
	if has&hasWindow != 0 && m.Context != nil {
		m.Context.InSummary, m.Context.Skipped = r.messages(), r.messages()
		m.Context.Summarised, m.Context.SummaryFault = r.text() != "", conversation.SummaryFault(r.text())
	}
	if has&hasError != 0 {
		m.Error = &conversation.ReplyError{Code: r.text(), Message: r.text()}
	}
	if has&hasSimilarity != 0 && m.Context != nil {
		m.Context.Similarity = conversation.Similarity(r.text())
	}
	if r.bad {
		return errRecord
	}
	return nil
}

// reader reads a record: texts share its memory. bad says that it ended too early.
type reader struct {
	rest string
	bad  bool
}

func (r *reader) byte() byte {
	if r.rest == "" {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint() (n uint64) {
	for shift := 0; ; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7F) << shift
		if b < 0x80 || shift > 56 {
			return n
		}
	}
}

func (r *reader) int() int {
	n := r.uvarint()
	return int(int64(n>>1) ^ -int64(n&1))
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, n = true, uint64(len(r.rest))
	}
	text := r.rest[:n]
	r.rest = r.rest[n:]
	return text
}

func (r *reader) messages() conversation.MessageRange {
	return conversation.MessageRange{Count: r.int(), First: r.text(), Last: r.text()}
}

// validPrefix returns the whole characters that a text begins with.
func validPrefix(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	for n := 0; ; {
		c, size := utf8.DecodeRuneInString(text[n:])
		if c == utf8.RuneError && size <= 1 {
			return text[:n]
		}
		n += size
	}
}
