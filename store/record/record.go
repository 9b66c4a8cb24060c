package record

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed means that a record is cut short, or has a Version that this program does not know.
var ErrMalformed = errors.New("record: a stored record is malformed or of a later version")

// Version is the first byte in the records of messages and indexed messages.
const Version = 1

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendInts(b []byte, all ...int) []byte {
	for _, n := range all {
		b = binary.AppendVarint(b, int64(n))
	}
	return b
}

// flagText encodes a flag as text: "1" for true, "" for false.
func flagText(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// reader reads the fields of a record in order. bad becomes true when the record ends too early. Fields that are read later are
// zero or cut short.
type reader[T string | []byte] struct {
	rest T
	bad  bool
}

// err returns ErrMalformed if the record ended too early.
func (r *reader[T]) err() error {
	if r.bad {
		return ErrMalformed
	}
	return nil
}

func (r *reader[T]) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader[T]) uvarint() (n uint64) {
	for shift := 0; ; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7F) << shift
		if b < 0x80 || shift > 56 {
			return n
		}
	}
}

func (r *reader[T]) int64() int64 {
	n := r.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *reader[T]) int() int { return int(r.int64()) }

// raw reads a text or bytes. The result shares the memory of the record.
func (r *reader[T]) raw() T { return r.take(r.uvarint()) }

// take reads the next n bytes. The result shares the memory of the record.
func (r *reader[T]) take(n uint64) T {
	if n > uint64(len(r.rest)) {
		r.bad, n = true, uint64(len(r.rest))
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader[T]) text() string { return string(r.raw()) }

// bytes reads bytes and returns a copy, or nil if their number is 0.
func (r *reader[T]) bytes() []byte {
	if raw := r.raw(); len(raw) > 0 {
		return append([]byte(nil), raw...)
	}
	return nil
}

// known returns the constant that equals raw, so that raw is not copied. If no constant equals raw, it returns raw, converted to
// S.
func known[S ~string, T string | []byte](raw T, few ...S) S {
	for _, s := range few {
		if string(raw) == string(s) {
			return s
		}
	}
	return S(raw)
}
