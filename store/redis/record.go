package redis

import (
	"encoding/binary"
	"unicode/utf8"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
	"parley/stream"
)

// A message is a member of its session's sorted set (lua/lib/messages.lua). The member consists of the id, NUL, the tokens in a
// prompt (4 bytes), createdAt (8 bytes), and a record (package record), which scripts do not read. The live reply is not in the
// set. Scripts return the live reply in the same format, but with recordStreaming and the journal's text instead of the record.
const (
	recordStreaming = 0

	idLength   = len(conversation.MessagePrefix) + 16
	headLength = idLength + 1 + 4 + 8
)

// readMember reads a message of a session in the format that scripts return.
func readMember(sessionID, member string) (conversation.Message, error) {
	return readMemberBy(record.ReadMessage[string], sessionID, member)
}

// readMemberBy does the same as readMember; read decodes the record of an ended message.
func readMemberBy(read func(string, *conversation.Message) error, sessionID, member string) (conversation.Message, error) {
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
	err := read(member[headLength:], &m)
	return m, err
}

// appendIndexed appends the record of a message in the index, without the message's terms.
func appendIndexed(b []byte, m *conversation.Message) []byte {
	x := conversation.Index(m, "")
	return record.AppendIndexed(b, &x)
}

func appendTerms(b []byte, terms window.Terms) []byte {
	b, _ = terms.AppendBinary(b) // it never fails
	return b
}

// readIndexed reads an indexed message in the format that scripts return: id, NUL, record, and terms up to the end, if any.
func readIndexed(member string, reader *record.IndexedReader[string]) (conversation.Indexed, error) {
	if len(member) < idLength+2 {
		return conversation.Indexed{}, errRecord
	}
	x := conversation.Indexed{ID: member[:idLength]}
	err := reader.Read(member[idLength+1:], &x)
	return x, err
}

// validPrefix returns the part of a text before the first byte that is not valid UTF-8. A journal may end within a character.
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
