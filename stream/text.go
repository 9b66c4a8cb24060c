package stream

import (
	"sort"
	"unicode/utf8"
	"unsafe"
)

const (
	// firstChunk is the size of a text's first chunk, in bytes: enough for about 200 tokens. Each further chunk is as large
	// as the text before it, up to maxChunk. So a short reply takes little memory, and a long one takes few chunks.
	firstChunk = 1 << 10
	// maxChunk is the maximum size of a chunk that grows. It equals MaxDelta, because a delta lies in one chunk.
	maxChunk = MaxDelta
)

// text is an append-only text in chunks. It grows without copying: the bytes of a chunk never move and never change. So
// viewers, the journal and the store can share the bytes. Each chunk has whole characters only.
type text struct {
	chunks []chunk
	size   int // in bytes
}

// chunk is a part of a text. from is its offset in the text.
type chunk struct {
	from  int
	bytes []byte
}

// textOf returns a text with one chunk, which shares the memory of s.
func textOf(s string) text {
	if s == "" {
		return text{}
	}
	return text{chunks: []chunk{{bytes: unsafe.Slice(unsafe.StringData(s), len(s))}}, size: len(s)}
}

// append appends b, which must be valid UTF-8. It splits b only if b is larger than a chunk, so that a token is one delta.
func (t *text) append(b []byte) {
	for len(b) > 0 {
		next := min(max(t.size, firstChunk), maxChunk) // the size of the next chunk
		last := len(t.chunks) - 1
		if last < 0 || len(b) > t.chunks[last].room() && (len(b) <= next || t.chunks[last].room() < utf8.UTFMax) {
			t.chunks = append(t.chunks, chunk{from: t.size, bytes: make([]byte, 0, next)})
			last++
		}
		c := &t.chunks[last]
		n := prefix(b, c.room())
		c.bytes = append(c.bytes, b[:n]...)
		t.size += n
		b = b[n:]
	}
}

func (c *chunk) room() int { return cap(c.bytes) - len(c.bytes) }

// equals reports whether the text equals s.
func (t *text) equals(s string) bool {
	if len(s) != t.size {
		return false
	}
	for _, c := range t.chunks {
		if string(c.bytes) != s[c.from:c.from+len(c.bytes)] {
			return false
		}
	}
	return true
}

// from returns the text from offset to the end of the chunk that contains offset. It returns an empty slice if offset is
// at or after the end of the text.
func (t *text) from(offset int) []byte {
	last := len(t.chunks) - 1
	if offset >= t.size || offset < 0 {
		return nil
	}
	c := &t.chunks[last]
	if offset < c.from { // the viewer is behind the newest chunk
		c = &t.chunks[sort.Search(last, func(i int) bool { return t.chunks[i].from > offset })-1]
	}
	return c.bytes[offset-c.from:]
}

// String returns the whole text. If the text has one chunk, the string shares the chunk's memory, because the bytes of a
// chunk never change.
func (t *text) String() string {
	switch len(t.chunks) {
	case 0:
		return ""
	case 1:
		b := t.chunks[0].bytes
		return unsafe.String(unsafe.SliceData(b), len(b))
	}
	whole := make([]byte, 0, t.size)
	for _, c := range t.chunks {
		whole = append(whole, c.bytes...)
	}
	return unsafe.String(unsafe.SliceData(whole), len(whole))
}

// prefix returns the length of the longest prefix of b that has at most n bytes and does not split a character.
func prefix(b []byte, n int) int {
	if len(b) <= n {
		return len(b)
	}
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return max(n, 0)
}
