package record

import (
	"encoding/binary"
	"math"

	"parley/conversation"
)

// AppendIndexed appends the record of an indexed message: all but ID, Terms and Vector. The terms, as their AppendBinary writes
// them, may follow and then end the record; a store decides that, because only a semantic window needs them.
func AppendIndexed(b []byte, x *conversation.Indexed) []byte {
	b = appendText(append(b, Version), string(x.Role))
	b = appendText(appendInts(b, x.Tokens), flagText(x.Skip))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x.Priority))
}

// ReadIndexed reads what AppendIndexed wrote, and the terms that follow, if any. The other fields of x stay as they are.
func ReadIndexed[T string | []byte](record T, x *conversation.Indexed) error {
	r := reader[T]{rest: record}
	if r.byte() != Version {
		return ErrMalformed
	}
	x.Role, x.Tokens, x.Skip = r.role(), r.int(), len(r.raw()) > 0
	bits := uint64(0)
	for shift := 0; shift < 64; shift += 8 {
		bits |= uint64(r.byte()) << shift
	}
	x.Priority = math.Float64frombits(bits)
	if r.bad || len(r.rest) == 0 {
		return r.err()
	}
	return x.Terms.UnmarshalBinary([]byte(r.rest))
}

// AppendSummaryText appends the first part of a summary's record: its text. AppendSummaryFigures appends the second. They are
// apart because a poll on Redis reads the figures alone. Last is in neither: Redis' scripts compare it.
func AppendSummaryText(b []byte, s *conversation.Summary) []byte { return appendText(b, s.Text) }

// AppendSummaryFigures appends the second part of a summary's record: Tokens, Count and Replaced.
func AppendSummaryFigures(b []byte, s *conversation.Summary) []byte {
	return appendInts(b, s.Tokens, s.Count, s.Replaced)
}

// ReadSummary reads a summary's text and figures. Its Last stays as it is.
func ReadSummary[T string | []byte](record T, s *conversation.Summary) error {
	r := reader[T]{rest: record}
	s.Text = r.text()
	if r.bad {
		return ErrMalformed
	}
	return ReadSummaryFigures(r.rest, s)
}

// ReadSummaryFigures reads a summary's figures. Those that were written before there was Replaced have none.
func ReadSummaryFigures[T string | []byte](record T, s *conversation.Summary) error {
	r := reader[T]{rest: record}
	s.Tokens, s.Count = r.int(), r.int()
	if len(r.rest) > 0 {
		s.Replaced = r.int()
	}
	return r.err()
}
