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

// chunk is an event in the form that encoding/json decodes. answer uses chunk for events that [scanChunk] does not
// support. The fuzz tests compare scanChunk with chunk.
type chunk struct {
	Object  json.RawMessage `json:"object"`
	Choices []choice        `json:"choices"`
	Usage   *struct {
		Prompt     int             `json:"prompt_tokens"`
		Completion int             `json:"completion_tokens"`
		Total      json.RawMessage `json:"total_tokens"`
		Details    json.RawMessage `json:"completion_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type choice struct {
	Index int `json:"index"`
	Delta struct {
		// Content keeps its escapes: encoding/json would replace the first half of a surrogate pair, and the next event
		// may have the second half. So does Refusal, which some servers send in place of the content.
		Content json.RawMessage `json:"content"`
		Refusal json.RawMessage `json:"refusal"`
		// These fields are not text of the reply.
		ReasoningContent json.RawMessage `json:"reasoning_content"`
		Reasoning        json.RawMessage `json:"reasoning"`
		Thinking         json.RawMessage `json:"thinking"`
		ToolCalls        json.RawMessage `json:"tool_calls"`
		FunctionCall     json.RawMessage `json:"function_call"`
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

// failed reports whether the event is an error. Most servers set the field error. Old versions of vLLM set the field object
// to "error" instead.
func (c *chunk) failed() bool {
	return !isNull(c.Error) || string(c.Object) == `"error"`
}

// maxUsage is the largest number of tokens that we accept from a provider. Context windows have at most a few million
// tokens, and sums must not overflow.
const maxUsage = 1_000_000_000

// usage returns the zero Usage if the event has no usage, or an implausible one. Some servers send zeros until they have counted
// the tokens.
func (c *chunk) usage() stream.Usage {
	u := c.Usage
	plausible := func(n int) bool { return 0 <= n && n <= maxUsage }
	if u == nil || !plausible(u.Prompt) || !plausible(u.Completion) {
		return stream.Usage{}
	}
	var details struct {
		Reasoning json.RawMessage `json:"reasoning_tokens"`
	}
	_ = json.Unmarshal(u.Details, &details) // details may have any form; the figure then stays empty
	figure := func(raw json.RawMessage) int {
		if n, err := strconv.Atoi(string(raw)); err == nil && plausible(n) {
			return n
		}
		return 0
	}
	return usageOf(u.Prompt, u.Completion, figure(details.Reasoning), figure(u.Total))
}

// usageOf returns the usage for a provider's figures; reasoning and total are 0 if the provider gave none. Most providers count
// reasoning as a part of completion, as [stream.Usage] does. A provider that counts reasoning apart adds it to the total, or
// reports more reasoning than completion.
func usageOf(prompt, completion, reasoning, total int) stream.Usage {
	if reasoning > completion || reasoning > 0 && total == prompt+completion+reasoning {
		completion += reasoning
	}
	return stream.Usage{Prompt: prompt, Completion: completion, Reasoning: reasoning}
}

// content returns the content as a JSON string without its quotes, or nil if the choice has no content.
func (c *choice) content() ([]byte, error) { return unquoted(c.Delta.Content) }

// refusal returns the text of a refusal as a JSON string without its quotes, or nil if the choice has none.
func (c *choice) refusal() ([]byte, error) { return unquoted(c.Delta.Refusal) }

// reasoned reports whether the choice has a piece of the model's reasoning.
func (c *choice) reasoned() bool {
	for _, raw := range []json.RawMessage{c.Delta.ReasoningContent, c.Delta.Reasoning, c.Delta.Thinking} {
		if text, err := unquoted(raw); err == nil && len(text) > 0 {
			return true
		}
	}
	return false
}

// callsTool reports whether the choice has a part of a call of a tool. Some servers send an empty list with each event.
func (c *choice) callsTool() bool {
	return !isNull(c.Delta.FunctionCall) || !isNull(c.Delta.ToolCalls) && string(c.Delta.ToolCalls) != "[]"
}

// unquoted returns a JSON string without its quotes, nil for null or nothing, and an error for any other value.
func unquoted(raw json.RawMessage) ([]byte, error) {
	if isNull(raw) {
		return nil, nil
	}
	if raw[0] != '"' {
		return nil, errUnreadable
	}
	return raw[1 : len(raw)-1], nil
}

// reason returns the finish reason, or "" if the reply goes on. Some servers send an empty finish reason until the end.
func (c *choice) reason() string {
	if c.FinishReason == nil {
		return ""
	}
	return *c.FinishReason
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// text decodes consecutive JSON strings to UTF-8. One string may end with the first half of a surrogate pair, and the next
// string may begin with the second half. A half without its counterpart becomes U+FFFD. Bytes that are not valid UTF-8
// stay unchanged: a server may split a raw character over two strings, and [stream.Reply.Append] joins the parts.
type text struct {
	high rune // first half of a surrogate pair, which waits for the second half; 0 if there is no such half
	buf  []byte
}

// decode returns the text of content, which must be a valid JSON string without its quotes. The result is valid until the
// next call.
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

// escape decodes the escape sequence at the beginning of s and returns its length in bytes.
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
		t.buf = utf8.AppendRune(t.buf, r) // appends U+FFFD if r is a second half without a first half
	}
	return 6
}

// flushHalf returns buf. If a first half is waiting for its second half, flushHalf first appends U+FFFD.
func (t *text) flushHalf() []byte {
	if t.high == 0 {
		return t.buf
	}
	t.high = 0
	return utf8.AppendRune(t.buf, utf8.RuneError)
}

// end returns U+FFFD if the last string ended with the first half of a surrogate pair, else an empty slice.
func (t *text) end() []byte {
	t.buf = t.buf[:0]
	return t.flushHalf()
}
