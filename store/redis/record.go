package redis

import (
	"encoding/binary"
	"unicode/utf8"

	"parley/conversation"
	stored "parley/store/record" // keys.go has a type record
	"parley/stream"
)

// A message is a member of its session's set, as lua/session.lua writes it: id, NUL, tokens in a prompt (4 bytes), createdAt (8), and a
// record (package record), which scripts do not look into. A reply that is streaming is no member: the scripts return it as one, with
// recordStreaming and the journalled text where the record would be.
const (
	recordStreaming = 0

	idLength   = len(conversation.MessagePrefix) + 16
	headLength = idLength + 1 + 4 + 8
)

func appendMessage(b []byte, m *conversation.Message) []byte { return stored.AppendMessage(b, m) }

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
	if member[headLength] == recordStreaming {
		m.Role, m.Status, m.Content = conversation.Assistant, stream.Streaming, validPrefix(member[headLength+1:])
		return m, nil
	}
	err := stored.ReadMessage(member[headLength:], &m)
	return m, err
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
