package openai

import (
	"bytes"

	"parley/stream"
)

// event holds the fields of an event that we use.
type event struct {
	choice   bool         // the event has a choice
	content  []byte       // a JSON string without its quotes; nil if the event has no content
	reasoned bool         // the event has a piece of the model's reasoning
	reason   []byte       // the finish reason; empty if the reply goes on
	usage    stream.Usage // zero if the event has no usage
}

// scanChunk parses the common forms of an event without allocating. In these forms, the event has at most one choice, with index
// 0. The values of all fields that we do not use are scalars, or objects of scalars. For any other event, and for broken JSON, ok
// is false, and the caller uses [decodeChunk]. If ok is true, decodeChunk would return the same values. A fuzz test compares
// scanChunk with decodeChunk.
func scanChunk(data []byte) (e event, ok bool) {
	s := scanner{b: data}
	choices, usage := false, false
	for more := s.enter('{'); more; more = s.next('}') {
		switch key := s.key(); string(key) {
		case "choices":
			s.once(&choices)
			s.choices(&e)
		case "object":
			s.bad = s.bad || string(s.plainString()) != "chat.completion.chunk"
		case "usage":
			s.once(&usage)
			s.usage(&e.usage)
		case "error":
			s.literal("null")
		default:
			s.unknown(key)
		}
	}
	s.space()
	return e, choices && !s.bad && s.i == len(s.b)
}

// shape holds the bytes of an event before and after its content. Most events of a response differ only in their content.
// If an event has the shape of an earlier event, scan parses only the content, and compares the other bytes. To compare
// bytes takes a tenth of the time that it takes to parse them.
type shape struct {
	head, tail []byte // the bytes up to the content's opening quote, and the bytes from its closing quote on
}

// scan returns the same as scanChunk. It is faster if data has the shape that h holds from an earlier event.
func (h *shape) scan(data []byte) (e event, ok bool) {
	if end := len(data) - len(h.tail); end >= len(h.head) && len(h.head) > 0 &&
		bytes.Equal(data[:len(h.head)], h.head) && bytes.Equal(data[end:], h.tail) {
		s := scanner{b: data[:end+1], i: len(h.head) - 1}
		if content := s.string(); !s.bad && s.i == len(s.b) {
			return event{choice: true, content: content}, true
		}
	}
	e, ok = scanChunk(data)
	if ok && e.content != nil && !e.reasoned && len(e.reason) == 0 && e.usage == (stream.Usage{}) {
		at := cap(data) - cap(e.content) // the offset of the content in data, because content is a slice of data
		h.head = append(h.head[:0], data[:at]...)
		h.tail = append(h.tail[:0], data[at+len(e.content):]...)
	}
	return e, ok
}

// scanner parses JSON in one pass. It sets bad at the first byte that it does not support. After that, the results of its
// methods have no meaning, but the methods are still safe to call.
type scanner struct {
	b   []byte
	i   int // index of the next byte in b
	bad bool
}

// once sets bad if a field is repeated, because encoding/json would merge the two values. seen belongs to the field.
func (s *scanner) once(seen *bool) {
	s.bad = s.bad || *seen
	*seen = true
}

func (s *scanner) choices(e *event) {
	if !s.enter('[') {
		return
	}
	e.choice = true
	delta, reason := false, false
	for more := s.enter('{'); more; more = s.next('}') {
		switch key := s.key(); string(key) {
		case "index":
			s.literal("0")
		case "finish_reason":
			s.once(&reason)
			if s.peek() == 'n' {
				s.literal("null")
			} else {
				e.reason = s.plainString()
			}
		case "delta":
			s.once(&delta)
			s.delta(e)
		default:
			s.unknown(key)
		}
	}
	if s.next(']') {
		s.bad = true // a second choice
	}
}

// delta reads the part of a reply in an event. A refusal and a call of a tool are rare, so encoding/json parses them.
func (s *scanner) delta(e *event) {
	content, reasonings := false, [len(reasoningFields)]bool{}
	for more := s.enter('{'); more; more = s.next('}') {
		switch key := s.key(); string(key) {
		case "content":
			s.once(&content)
			if s.peek() == 'n' {
				s.literal("null")
			} else {
				e.content = s.string()
			}
		case reasoningFields[0]:
			s.reasoning(e, key, &reasonings[0])
		case reasoningFields[1]:
			s.reasoning(e, key, &reasonings[1])
		case reasoningFields[2]:
			s.reasoning(e, key, &reasonings[2])
		case "refusal", "tool_calls", "function_call":
			s.literal("null")
		default:
			s.unknown(key)
		}
	}
}

// reasoningFields are the names of the fields in which servers send a model's reasoning.
var reasoningFields = [...]string{"reasoning_content", "reasoning", "thinking"}

// reasoning reads one of reasoningFields. Some servers send an empty text with each piece of content.
func (s *scanner) reasoning(e *event, key []byte, seen *bool) {
	s.once(seen)
	if s.peek() != '"' {
		s.unknown(key)
		return
	}
	e.reasoned = len(s.string()) > 0 || e.reasoned
}

func (s *scanner) usage(u *stream.Usage) {
	if s.peek() == 'n' {
		s.literal("null")
		return
	}
	var prompt, completion, total, details bool
	sum, reasoning := 0, 0
	for more := s.enter('{'); more; more = s.next('}') {
		switch key := s.key(); string(key) {
		case "prompt_tokens":
			s.once(&prompt)
			u.Prompt = s.tokens()
		case "completion_tokens":
			s.once(&completion)
			u.Completion = s.tokens()
		case "total_tokens":
			s.once(&total)
			sum = s.tokens()
		case "completion_tokens_details":
			s.once(&details)
			reasoning = s.reasoningTokens()
		default:
			s.unknown(key)
		}
	}
	*u = usageOf(u.Prompt, u.Completion, reasoning, sum)
}

// reasoningTokens reads the details of the completion tokens.
func (s *scanner) reasoningTokens() (n int) {
	if s.peek() == 'n' {
		s.literal("null")
		return 0
	}
	seen := false
	for more := s.enter('{'); more; more = s.next('}') {
		if key := s.key(); string(key) == "reasoning_tokens" {
			s.once(&seen)
			n = s.tokens()
		} else {
			s.unknown(key)
		}
	}
	return n
}

// tokens reads a number of tokens. It sets bad for more than maxUsage tokens, and for anything but an integer.
func (s *scanner) tokens() (n int) {
	s.space()
	start := s.i
	s.number()
	for _, c := range s.b[start:s.i] {
		if n = 10*n + int(c-'0'); c == '-' || c == '.' || n > maxUsage {
			s.bad = true
			return 0
		}
	}
	return n
}

// enter steps into an object or array and reports whether the object or array has a member.
func (s *scanner) enter(open byte) bool {
	if s.peek() != open {
		s.bad = true
		return false
	}
	s.i++
	if s.peek() == open+2 { // '}' after '{', ']' after '['
		s.i++
		return false
	}
	return !s.bad
}

// next steps over a comma and returns true. At the end of the object or array, it steps over the byte end and returns false.
func (s *scanner) next(end byte) bool {
	switch c := s.peek(); {
	case s.bad:
		return false
	case c == ',':
		s.i++
		return true
	case c == end:
		s.i++
		return false
	}
	s.bad = true
	return false
}

// key reads the name of a member and the colon after the name.
func (s *scanner) key() []byte {
	key := s.plainString()
	if s.peek() != ':' {
		s.bad = true
		return key
	}
	s.i++
	return key
}

// unknown skips the value of a field that the decoder does not use. The value must be a scalar or an object of scalars. unknown
// sets bad if the name contains anything except lower-case letters, digits and underscores: encoding/json ignores case, so it
// treats "Choices" as choices, and scanChunk must not skip such a field.
func (s *scanner) unknown(key []byte) {
	for _, c := range key {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			s.bad = true
			return
		}
	}
	if s.peek() != '{' {
		s.scalar()
		return
	}
	for more := s.enter('{'); more; more = s.next('}') {
		s.key()
		s.scalar()
	}
}

// scalar skips a string, a number, true, false or null. It sets bad for any other value.
func (s *scanner) scalar() {
	switch c := s.peek(); c {
	case '"':
		s.string()
	case 'n':
		s.literal("null")
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	default:
		s.number()
	}
}

// plainString reads a string. It sets bad if the string has escape sequences.
func (s *scanner) plainString() []byte {
	text := s.string()
	for _, c := range text {
		if c == '\\' {
			s.bad = true
		}
	}
	return text
}

// string reads a string and returns the bytes between its quotes, with their escape sequences. The result is nil only if
// bad is set.
func (s *scanner) string() []byte {
	if s.peek() != '"' {
		s.bad = true
		return nil
	}
	start := s.i + 1
	for i := start; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return s.b[start:i]
		case c < ' ':
			s.bad = true
			return nil
		case c == '\\':
			n := escapeLen(s.b[i:])
			if n == 0 {
				s.bad = true
				return nil
			}
			i += n - 1
		}
	}
	s.bad = true
	return nil
}

// escapeLen returns the length of the escape sequence at the beginning of b, or 0 if the sequence is invalid.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

// number skips an integer or a decimal fraction. It sets bad for any other number, so that encoding/json parses the event.
func (s *scanner) number() {
	if s.peek() == '-' {
		s.i++
	}
	start := s.i
	s.digits()
	if s.i-start > 1 && s.b[start] == '0' {
		s.bad = true
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		s.digits()
	}
}

func (s *scanner) digits() {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == start {
		s.bad = true
	}
}

// literal skips word. It sets bad if the next bytes are not word.
func (s *scanner) literal(word string) {
	s.space()
	if end := s.i + len(word); end <= len(s.b) && string(s.b[s.i:end]) == word {
		s.i = end
	} else {
		s.bad = true
	}
}

// peek skips white space and returns the next byte without reading it, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}
