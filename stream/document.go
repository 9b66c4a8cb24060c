package stream

import "slices"

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
	dst = slices.Grow(dst, len(d.Before)+StringSize(d.Content)+len(d.After)+afterDocument)
	dst = AppendString(append(dst, d.Before...), d.Content)
	return append(dst, d.After...)
}

// StringSize returns the number of bytes that AppendString appends for s.
func StringSize(s string) int {
	size := len(s) + len(`""`)
	for i := range len(s) {
		switch c := s[i]; {
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
func AppendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
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
