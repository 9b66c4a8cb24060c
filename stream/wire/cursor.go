package wire

import (
	"errors"
	"strconv"
	"strings"

	"parley/stream"
)

// A cursor is the session's tag, the id of the message, and the offset or "e" for ended, joined by dots. The tag detects
// the cursor of another session. It is no protection: access is checked elsewhere.

// ErrBadCursor means that a cursor is malformed or belongs to another session.
var ErrBadCursor = errors.New("the cursor is malformed or belongs to another session")

// AppendCursor appends the cursor of a position in the topic.
func AppendCursor(dst []byte, topic string, p stream.Position) []byte {
	dst = appendTag(dst, topic)
	dst = append(dst, '.')
	dst = append(dst, p.ID...)
	dst = append(dst, '.')
	if p.Ended || p.ID == "" {
		return append(dst, 'e')
	}
	return strconv.AppendInt(dst, int64(p.Offset), 10)
}

// Cursor returns the cursor of a position in the topic.
func Cursor(topic string, p stream.Position) string {
	return string(AppendCursor(nil, topic, p))
}

// ParseCursor returns the position of a cursor in the topic, or ErrBadCursor. validID reports whether an id is well
// formed. ParseCursor does not check whether the message exists.
func ParseCursor(topic, cursor string, validID func(id string) bool) (stream.Position, error) {
	tag, rest, _ := strings.Cut(cursor, ".")
	id, offset, ok := strings.Cut(rest, ".")
	switch {
	case !ok || tag != string(appendTag(nil, topic)):
		return stream.Position{}, ErrBadCursor
	case id == "" && offset == "e":
		return stream.Position{}, nil
	case !validID(id):
		return stream.Position{}, ErrBadCursor
	case offset == "e":
		return stream.After(id), nil
	}
	n, err := strconv.ParseUint(offset, 10, 31)
	if err != nil || offset != strconv.FormatUint(n, 10) {
		return stream.Position{}, ErrBadCursor
	}
	return stream.Position{ID: id, Offset: int(n)}, nil
}

// appendTag appends four characters: the base 32 digits of the FNV-1a hash of the topic's name, lowest first.
func appendTag(dst []byte, topic string) []byte {
	h := uint32(2166136261)
	for i := range len(topic) {
		h = (h ^ uint32(topic[i])) * 16777619
	}
	const digits = "0123456789abcdefghijklmnopqrstuv"
	for range 4 {
		dst = append(dst, digits[h%32])
		h /= 32
	}
	return dst
}
