package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"parley/stream"
)

// chunk is an event of an answer, as encoding/json reads it: the reference for [scanChunk], and what reads all that
// scanChunk does not.
type chunk struct {
	Object  json.RawMessage `json:"object"`
	Choices []choice        `json:"choices"`
	Usage   *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type choice struct {
	Index int `json:"index"`
	Delta struct {
		// Content stays as it was sent: encoding/json would replace half a character, whose other half may be in
		// the next event. Reasoning is no text of the reply and is not read.
		Content json.RawMessage `json:"content"`
	} `json:"delta"`
	FinishReason *string `json:"finish_reason"`
}

var errUnreadable = errors.New("not a chunk of a chat completion")

func decodeChunk(data []byte) (*chunk, error) {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, errUnreadable
	}
	return &c, nil
}

// failed says whether the event reports an error: in its field, or, as vLLM once did, by its kind.
func (c *chunk) failed() bool {
	return !isNull(c.Error) || string(c.Object) == `"error"`
}

// maxUsage is the largest count of tokens that is believed: a window holds a million (design section 2, validation), and what
// is added up must not overflow.
const maxUsage = 1_000_000_000

func (c *chunk) usage() *stream.Usage {
	u := c.Usage
	believed := func(n int) bool { return 0 <= n && n <= maxUsage }
	if u == nil || !believed(u.Prompt) || !believed(u.Completion) || u.Prompt+u.Completion == 0 {
		return nil // zeroes stand for "not counted yet"
	}
	return &stream.Usage{Prompt: u.Prompt, Completion: u.Completion}
}

// content returns the inside of the content's JSON string.
func (c *choice) content() ([]byte, error) {
	raw := c.Delta.Content
	if isNull(raw) {
		return nil, nil
	}
	if raw[0] != '"' {
		return nil, errUnreadable
	}
	return raw[1 : len(raw)-1], nil
}

// reason returns the finish reason, "" if there is none yet: some servers send it empty until then.
func (c *choice) reason() string {
	if c.FinishReason == nil {
		return ""
	}
	return finishReason(*c.FinishReason)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// text turns the insides of JSON strings, in their order, into UTF-8. A character that was escaped as two halves is
// whole again also where the halves came in two strings; a lone half becomes U+FFFD. Bytes that are no UTF-8 stay as
// they are: half a character may have been sent raw, and the reply that they go to joins those.
type text struct {
	high rune // the first half of a character whose second has not come
	buf  []byte
}

// decode returns the text of content, the inside of a valid JSON string. It is valid until the next call.
func (t *text) decode(content []byte) []byte {
	next := bytes.IndexByte(content, '\\')
	if t.high == 0 && next < 0 {
		return content
	}
	t.buf = t.buf[:0]
	for len(content) > 0 {
		if next < 0 {
			next = len(content)
		}
		if next > 0 {
			t.buf = append(t.settle(), content[:next]...)
			content = content[next:]
		} else {
			content = content[t.escape(content):]
		}
		next = bytes.IndexByte(content, '\\')
	}
	return t.buf
}

// escape appends what the escape at the beginning of s stands for and returns the escape's length.
func (t *text) escape(s []byte) int {
	const escaped, meant = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(escaped, s[1]); i >= 0 {
		t.buf = append(t.settle(), meant[i])
		return 2
	}
	unit, _ := strconv.ParseUint(string(s[2:6]), 16, 16)
	r := rune(unit)
	if t.high != 0 {
		if whole := utf16.DecodeRune(t.high, r); whole != utf8.RuneError {
			t.high = 0
			t.buf = utf8.AppendRune(t.buf, whole)
			return 6
		}
	}
	t.buf = t.settle()
	if r >= 0xD800 && r < 0xDC00 {
		t.high = r
	} else {
		t.buf = utf8.AppendRune(t.buf, r) // a lone second half becomes U+FFFD
	}
	return 6
}

// settle returns buf, with U+FFFD for a first half whose second did not follow.
func (t *text) settle() []byte {
	if t.high == 0 {
		return t.buf
	}
	t.high = 0
	return utf8.AppendRune(t.buf, utf8.RuneError)
}

// end returns what is left when no more strings follow.
func (t *text) end() []byte {
	t.buf = t.buf[:0]
	return t.settle()
}
