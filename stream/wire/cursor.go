package wire

import (
	"errors"
	"strconv"
	"strings"

	"parley/stream"
)

// A cursor consists of three parts, joined by dots: a tag of the session, the id of a message, and an offset. "e" in place
// of the offset means the end of the message. The tag detects a cursor of another session. The tag does not protect
// sessions: other packages check whether the caller may access the session.

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

// ParseCursor returns the position that a cursor stands for, or ErrBadCursor. It accepts only message ids for which validID
// returns true. It does not check whether the message exists.
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

// appendTag appends the tag of a topic: the lowest four digits, in base 32, of the FNV-1a hash of the topic's name. The
// lowest digit comes first.
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
