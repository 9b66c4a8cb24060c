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

// chunk is an event as encoding/json decodes it. It is used for events that [scanChunk] does not support, and in tests as
// the reference for scanChunk.
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
		// Content is not decoded: encoding/json would replace half a surrogate pair, and the next event may have the
		// other half. Reasoning is not text of the reply, so there is no field for it.
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

// failed reports whether the event is an error: by its field error, or by its field object, as in old versions of vLLM.
func (c *chunk) failed() bool {
	return !isNull(c.Error) || string(c.Object) == `"error"`
}

// maxUsage is the largest plausible number of tokens: common windows have at most a few million, and sums must not
// overflow.
const maxUsage = 1_000_000_000

func (c *chunk) usage() *stream.Usage {
	u := c.Usage
	plausible := func(n int) bool { return 0 <= n && n <= maxUsage }
	if u == nil || !plausible(u.Prompt) || !plausible(u.Completion) || u.Prompt+u.Completion == 0 {
		return nil // zeroes mean "not counted yet"
	}
	return &stream.Usage{Prompt: u.Prompt, Completion: u.Completion}
}

// content returns the inside of the content's JSON string, or nil if there is no content.
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

// reason returns the finish reason, or "" if there is none yet. Some servers send an empty one until the end.
func (c *choice) reason() string {
	if c.FinishReason == nil {
		return ""
	}
	return finishReason(*c.FinishReason)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// text decodes the insides of consecutive JSON strings to UTF-8. Two strings may each have half of a surrogate pair. A
// half without the other becomes U+FFFD. Bytes that are not valid UTF-8 stay: a server may split a raw character over two
// strings, and the reply joins it again.
type text struct {
	high rune // first half of a surrogate pair that waits for the second; 0 for none
	buf  []byte
}

// decode returns the text of content, which must be the inside of a valid JSON string. The result is valid until the next
// call.
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
			t.buf = append(t.flushHalf(), content[:next]...)
			content = content[next:]
		} else {
			content = content[t.escape(content):]
		}
		next = bytes.IndexByte(content, '\\')
	}
	return t.buf
}

// escape decodes the escape at the beginning of s and returns its length.
func (t *text) escape(s []byte) int {
	const escaped, decoded = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := strings.IndexByte(escaped, s[1]); i >= 0 {
		t.buf = append(t.flushHalf(), decoded[i])
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
	t.buf = t.flushHalf()
	if r >= 0xD800 && r < 0xDC00 {
		t.high = r
	} else {
		t.buf = utf8.AppendRune(t.buf, r) // a lone second half becomes U+FFFD
	}
	return 6
}

// flushHalf returns buf. If a first half is waiting for its second, it appends U+FFFD.
func (t *text) flushHalf() []byte {
	if t.high == 0 {
		return t.buf
	}
	t.high = 0
	return utf8.AppendRune(t.buf, utf8.RuneError)
}

// end returns the text that remains after the last string.
func (t *text) end() []byte {
	t.buf = t.buf[:0]
	return t.flushHalf()
}
