package redis

import (
	"encoding/binary"
	"math"

	"parley/conversation"
)

// structReader reads numbers and texts that a script has packed with struct.pack: a number as a double, and a text after its length
// in 32 bits. If the rest is too short, it returns a zero value and sets malformed.
type structReader struct {
	rest      string
	malformed bool
}

func (r *structReader) take(n int) string {
	if n > len(r.rest) {
		*r = structReader{malformed: true}
		return ""
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *structReader) text() string {
	length := r.take(4)
	if length == "" {
		return ""
	}
	return r.take(int(binary.LittleEndian.Uint32([]byte(length))))
}

func (r *structReader) number() int64 {
	double := r.take(8)
	if double == "" {
		return 0
	}
	return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(double))))
}

func (r *structReader) int() int { return int(r.number()) }

func (r *structReader) time() conversation.Time { return conversation.Time(r.number()) }
