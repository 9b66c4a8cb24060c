package stream

import (
	"slices"
	"unsafe"
)

// Document is a final message as JSON, in three parts: Content is the text, which is not yet encoded. Before and After are
// the JSON before and after the text. So the reply and its ending share one copy of the text. A Document never changes.
type Document struct {
	Before  []byte
	Content string // valid UTF-8
	After   []byte
}

// afterDocument is the space for the rest of a frame or response, in bytes. AppendJSON leaves it free.
const afterDocument = 256

// AppendJSON appends the JSON of the message. It grows dst once, to the size that is needed, because the text may be large.
func (d *Document) AppendJSON(dst []byte) []byte {
	content := unsafe.Slice(unsafe.StringData(d.Content), len(d.Content)) // AppendString does not change it
	dst = slices.Grow(dst, len(d.Before)+stringSize(content)+len(d.After)+afterDocument)
	dst = AppendString(append(dst, d.Before...), content)
	return append(dst, d.After...)
}

// stringSize returns the number of bytes that AppendString appends for s.
func stringSize(s []byte) int {
	size := len(s) + len(`""`)
	for _, c := range s {
		switch {
		case c >= ' ' && c != '"' && c != '\\':
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			size++
		default:
			size += len(`\u0000`) - 1
		}
	}
	return size
}

// AppendString appends s as a JSON string. s must be valid UTF-8.
func AppendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
