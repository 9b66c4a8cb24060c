package embedded

import (
	"strings"
	"unsafe"
)

// sharedText is the text of a live reply, in parts. A part shares the memory of the reply's text, because the bytes of a segment
// never change (stream.Segment).
type sharedText struct {
	parts [][]byte
	size  int // in bytes
}

// append appends b, which must not change later. If the bytes of b directly follow the bytes of the last part in memory, the last
// part gets longer instead. This is true for nearly all segments, so a part is about as large as a chunk of the reply's text.
func (t *sharedText) append(b []byte) {
	if len(b) == 0 {
		return
	}
	t.size += len(b)
	if last := len(t.parts) - 1; last >= 0 {
		p := t.parts[last]
		if n := len(p); cap(p) >= n+len(b) && &p[:n+1][n] == &b[0] {
			t.parts[last] = p[:n+len(b)]
			return
		}
	}
	t.parts = append(t.parts, b)
}

// truncate removes the text after the first size bytes.
func (t *sharedText) truncate(size int) {
	for last := len(t.parts) - 1; t.size > size; last-- {
		n := len(t.parts[last])
		if kept := n - (t.size - size); kept > 0 {
			t.parts[last] = t.parts[last][:kept]
			t.size = size
			return
		}
		t.parts[last], t.parts = nil, t.parts[:last]
		t.size -= n
	}
}

// String returns a copy of the whole text.
func (t *sharedText) String() string {
	var whole strings.Builder
	whole.Grow(t.size)
	for _, part := range t.parts {
		whole.Write(part)
	}
	return whole.String()
}

// replace makes the text share the memory of final, if the text is the beginning of final.
func (t *sharedText) replace(final string) {
	rest := final
	for _, part := range t.parts {
		if len(part) > len(rest) || string(part) != rest[:len(part)] {
			return
		}
		rest = rest[len(part):]
	}
	if t.size > 0 {
		t.parts = append(t.parts[:0:0], unsafe.Slice(unsafe.StringData(final), t.size)) // nobody changes the bytes of a part
	}
}
