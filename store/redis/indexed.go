package redis

import (
	"encoding/binary"
	"math"

	"parley/conversation"
	"parley/conversation/window"
)

// An indexed message is id, NUL, and this record: its version (1), role, tokens, whether it is never sent, the bits of its priority,
// and its terms, up to the end.
const indexedVersion = 1

// appendIndexed appends the record of an indexed message, without its terms.
func appendIndexed(b []byte, m *conversation.Message) []byte {
	x := conversation.Index(m, "")
	b = appendText(append(b, indexedVersion), string(x.Role))
	b = appendText(appendInts(b, x.Tokens), flag(x.Skip))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x.Priority))
}

func appendTerms(b []byte, terms window.Terms) []byte {
	b, _ = terms.AppendBinary(b) // it never fails
	return b
}

// readIndexed reads an indexed message.
func readIndexed(member string) (conversation.Indexed, error) {
	if len(member) < idLength+2 || member[idLength+1] != indexedVersion {
		return conversation.Indexed{}, errRecord
	}
	r := reader{rest: member[idLength+2:]}
	x := conversation.Indexed{ID: member[:idLength], Role: conversation.Role(r.text()), Tokens: r.int(), Skip: r.text() != ""}
	if r.bad || len(r.rest) < 8 {
		return conversation.Indexed{}, errRecord
	}
	x.Priority = math.Float64frombits(binary.LittleEndian.Uint64([]byte(r.rest[:8])))
	if r.rest = r.rest[8:]; r.rest == "" {
		return x, nil
	}
	return x, x.Terms.UnmarshalBinary([]byte(r.rest))
}
