package record

import (
	"math"
	"slices"

	"parley/conversation"
	"parley/conversation/window"
)

// AppendIndexed appends the record of x to b and returns the extended slice. The record lacks ID, Terms and Vector. The caller
// may append the terms to the record (x.Terms.AppendBinary). Only the policy semantic needs the terms.
func AppendIndexed(b []byte, x *conversation.Indexed) []byte {
	b = appendText(append(b, Version), string(x.Role))
	b = appendText(appendInts(b, x.Tokens), skipText(x))
	return appendFloat(b, x.Priority)
}

// unanswered is the text for Skip and Unanswered. Versions before the field Unanswered take any text for Skip.
const unanswered = "2"

// skipText encodes Skip and Unanswered.
func skipText(x *conversation.Indexed) string {
	if x.Unanswered {
		return unanswered
	}
	return flagText(x.Skip)
}

// ReadIndexed decodes a record of AppendIndexed into x. If terms follow the record, ReadIndexed decodes the terms too. It does
// not change the other fields of x. It returns ErrMalformed, or the error of x.Terms.UnmarshalBinary.
func ReadIndexed[T string | []byte](record T, x *conversation.Indexed) error {
	r := reader[T]{rest: record}
	if r.byte() != Version {
		return ErrMalformed
	}
	x.Role, x.Tokens = r.role(), r.int()
	skip := r.raw()
	x.Skip, x.Unanswered = len(skip) > 0, string(skip) == unanswered
	x.Priority = math.Float64frombits(r.bits())
	if r.bad || len(r.rest) == 0 {
		return r.err()
	}
	return x.Terms.UnmarshalBinary([]byte(r.rest))
}

// IndexedReader decodes the records of many indexed messages. Their terms share memory. With memory of their own, the terms of a
// full index would take 1,000 allocations.
type IndexedReader[T string | []byte] struct {
	terms window.Terms // the free capacity is for the terms of the next records
}

// Read decodes a record of AppendIndexed into x, as ReadIndexed does. If the record has no terms, x.Terms becomes nil.
func (r *IndexedReader[T]) Read(record T, x *conversation.Indexed) error {
	if most := len(record) / 2; cap(r.terms)-len(r.terms) < most { // a term has at least two bytes
		r.terms = make(window.Terms, 0, max(2*cap(r.terms), most))
	}
	x.Terms = r.terms[len(r.terms):]
	err := ReadIndexed(record, x)
	r.terms = r.terms[:len(r.terms)+len(x.Terms)]
	if x.Terms = slices.Clip(x.Terms); len(x.Terms) == 0 {
		x.Terms = nil
	}
	return err
}

// AppendSummaryText appends the first part of a summary's record: its text. AppendSummaryFigures appends the second part. The
// parts are separate because a poll on Redis reads only the figures. Neither part contains Last. The stores keep Last separately,
// because Redis' scripts compare it.
func AppendSummaryText(b []byte, s *conversation.Summary) []byte { return appendText(b, s.Text) }

// AppendSummaryFigures appends the second part of a summary's record: Tokens, Count and Replaced.
func AppendSummaryFigures(b []byte, s *conversation.Summary) []byte {
	return appendInts(b, s.Tokens, s.Count, s.Replaced)
}

// ReadSummary decodes a summary's text and figures into s, and leaves Last unchanged. It returns ErrMalformed if the record is
// cut short.
func ReadSummary[T string | []byte](record T, s *conversation.Summary) error {
	r := reader[T]{rest: record}
	s.Text = r.text()
	if r.bad {
		return ErrMalformed
	}
	return ReadSummaryFigures(r.rest, s)
}

// ReadSummaryFigures decodes a summary's figures into s. Versions before the field Replaced wrote figures without it.
// ReadSummaryFigures then leaves Replaced unchanged. It returns ErrMalformed if the figures are cut short.
func ReadSummaryFigures[T string | []byte](record T, s *conversation.Summary) error {
	r := reader[T]{rest: record}
	s.Tokens, s.Count = r.int(), r.int()
	if len(r.rest) > 0 {
		s.Replaced = r.int()
	}
	return r.err()
}
