package record

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed says that a record is cut short, or of a version that this program does not know.
var ErrMalformed = errors.New("record: a stored record is malformed or of a later version")

// Version is the first byte of messages and indexed messages.
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

// flagText is how a single flag is written where a text stands: "1" or "".
func flagText(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// reader reads the fields of a record, one after the other. bad says that the record ended too early; what is read then is zero
// or cut short.
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

// raw returns a text or bytes, in the memory of the record.
func (r *reader[T]) raw() T { return r.take(r.uvarint()) }

// take returns the next n bytes, in the memory of the record.
func (r *reader[T]) take(n uint64) T {
	if n > uint64(len(r.rest)) {
		r.bad, n = true, uint64(len(r.rest))
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader[T]) text() string { return string(r.raw()) }

// bytes returns a copy, nil for none.
func (r *reader[T]) bytes() []byte {
	if raw := r.raw(); len(raw) > 0 {
		return append([]byte(nil), raw...)
	}
	return nil
}

// known returns a text as one of a few constants, so that it is not copied; one that is none of them is copied.
func known[S ~string, T string | []byte](raw T, few ...S) S {
	for _, s := range few {
		if string(raw) == string(s) {
			return s
		}
	}
	return S(raw)
}
