package openai

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"parley/stream"
)

const (
	lineBuffer = 1 << 10 // bytes: three times the length of a usual line; answer.long collects a longer line
	maxLine    = 1 << 20 // maximum length of a line, in bytes

	// A response has at most maxAnswer bytes, and textOverhead more for each byte of its text: a server may send each
	// character in an event of its own, with a few hundred bytes of other fields. So a model may reason at length, but
	// cannot send for ever. The bytes outside the text do not stay in memory.
	maxAnswer    = 64 << 20
	textOverhead = 512

	// usageWait is the timeout, after the finish reason, for the usage and for [DONE]. endWait is the timeout, after [DONE],
	// for the end of the body. The HTTP client can reuse a connection only after the end of the body.
	usageWait = 3 * time.Second
	endWait   = 50 * time.Millisecond
)

// answer reads the events of one response. Only one goroutine uses an answer.
type answer struct {
	reader    *bufio.Reader
	write     func([]byte)
	reasoning func()             // called when the model sends reasoning; nil for none
	cancel    context.CancelFunc // ends the request

	size   int    // number of bytes read so far, less textOverhead for each byte of text
	long   []byte // collects a line that is longer than reader's buffer
	shape  shape
	text   text
	think  thinking
	wrote  bool // the reply has text
	events bool // an event has arrived

	refused bool        // the text is a refusal
	whole   bool        // a finish reason or [DONE] has arrived
	done    bool        // [DONE] has arrived
	wait    *time.Timer // ends the request after usageWait or endWait; nil while whole is false
	result  stream.Result
}

// read reads until the response ends. It returns nil only if a finish reason or [DONE] has arrived.
func (a *answer) read() error {
	err := a.readEvents()
	if a.wait != nil {
		a.wait.Stop()
	}
	if a.whole {
		err = nil // the reply is complete, so a later error does not matter
	}
	if !repeated(err) {
		a.flush()
	}
	return err
}

// repeated reports whether the request may be sent again after err. Its text then begins anew.
func repeated(err error) bool {
	failed, ok := errors.AsType[*stream.ModelError](err)
	return mayRetry(err) || ok && failed.Code == stream.CodeContextTooLong
}

// flush writes the text that is held back at the end of the response.
func (a *answer) flush() {
	if rest := a.text.end(); len(rest) > 0 {
		a.writeText(rest)
	}
	if rest := a.think.end(); len(rest) > 0 {
		a.write(rest)
	}
}

func (a *answer) readEvents() error {
	for {
		line, readErr := a.line()
		if err := a.event(line); err != nil && (readErr == nil || !errors.Is(err, errUnreadable)) {
			return err
		}
		switch {
		case readErr == nil:
		case errors.Is(readErr, errTooLarge):
			return failure(messageTooLarge, &cause{err: errTooLarge})
		case readErr == io.EOF && !a.events:
			return failure(messageNoAnswer, &cause{what: "a response without events"})
		case readErr == io.EOF:
			return failure(messageBrokeOff, &cause{what: "an end without a finish reason"})
		default: // the connection broke
			return failure(messageBrokeOff, &cause{err: sanitise(readErr), retry: !a.wrote})
		}
	}
}

var errTooLarge = errors.New("over the bound")

// line returns the next line without its line end. The slice is valid until the next call. With errTooLarge, the slice is
// nil. With any other error, the slice is the last line of the body, and may be incomplete.
func (a *answer) line() ([]byte, error) {
	line, err := a.reader.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		a.long = a.long[:0]
		for err == bufio.ErrBufferFull && len(a.long) <= maxLine {
			a.long = append(a.long, line...)
			line, err = a.reader.ReadSlice('\n')
		}
		a.long = append(a.long, line...)
		line = a.long
	}
	a.size += len(line)
	if len(line) > maxLine || a.size > maxAnswer {
		return nil, errTooLarge
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// event processes one line. It treats every data line as a complete event: no known server splits an event over two
// lines, and some servers omit the blank line that should end an event.
func (a *answer) event(line []byte) error {
	if len(line) == 0 || a.done {
		return nil
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		if kind, ok := bytes.CutPrefix(line, []byte("event:")); ok && string(bytes.TrimSpace(kind)) == "error" {
			return failure(messageFailed, &cause{what: "an error within the answer"})
		}
		a.write(nil) // the line is a keep-alive comment or an unused field, so the model is alive
		return nil
	}
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		a.events, a.done = true, true
		a.complete(endWait)
		return nil
	}
	if e, ok := a.shape.scan(data); ok { // true for nearly every line
		a.events = true
		a.setUsage(e.usage)
		if !e.choice {
			a.write(nil)
			return nil
		}
		if e.reasoned {
			a.result.ReasonedApart = true
			a.reasons()
		}
		return a.choice(e.content, string(e.reason))
	}
	return a.chunk(data)
}

// chunk processes an event of any form. It parses the event with encoding/json.
func (a *answer) chunk(data []byte) error {
	c, err := decodeChunk(data)
	if err != nil {
		return failure(messageUnreadable, &cause{err: errUnreadable})
	}
	a.events = true
	a.setUsage(c.usage())
	if c.failed() {
		return reported(data, a.wrote)
	}
	seen := false
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		content, err := choice.content()
		if err != nil {
			return failure(messageUnreadable, &cause{err: err})
		}
		refusal, err := choice.refusal()
		if err != nil {
			return failure(messageUnreadable, &cause{err: err})
		}
		if choice.reasoned() {
			a.result.ReasonedApart = true
			a.reasons()
		}
		a.refused = a.refused || len(refusal) > 0
		a.result.CalledTool = a.result.CalledTool || choice.callsTool()
		a.writeContent(content)
		if err := a.choice(refusal, choice.reason()); err != nil {
			return err
		}
		seen = true
	}
	if !seen {
		a.write(nil)
	}
	return nil
}

// setUsage records the usage of an event, if it has one. Some servers send the usage so far in every event, so the last usage is
// the total.
func (a *answer) setUsage(usage stream.Usage) {
	if usage != (stream.Usage{}) {
		last := usage // a copy, so that an event without usage allocates nothing
		a.result.Usage = &last
	}
}

// choice processes the choice with index 0. reason is its finish reason; "" if the reply goes on.
func (a *answer) choice(content []byte, reason string) error {
	a.writeContent(content)
	switch reason = finishReason(reason); reason {
	case "":
	case "error":
		return failure(messageFailed, &cause{what: "finish reason error"})
	default:
		if a.refused {
			reason = finishRefusal
		}
		a.result.FinishReason = reason
		a.complete(usageWait)
	}
	return nil
}

// finishRefusal is the finish reason of a reply whose text is the model's refusal. Servers send "stop" after a refusal.
const finishRefusal = "refusal"

// writeContent decodes content and writes the text to the reply. content is a JSON string without its quotes.
func (a *answer) writeContent(content []byte) { a.writeText(a.text.decode(content)) }

// writeText writes the part of text that is not reasoning. Without such a part, it only reports that the model is alive.
func (a *answer) writeText(text []byte) {
	if !a.think.over {
		var reasoned bool
		if text, reasoned = a.think.cut(text); reasoned {
			a.reasons()
		}
	}
	a.wrote = a.wrote || len(text) > 0
	a.size -= textOverhead * len(text)
	a.write(text)
}

// reasons records that the model has sent a piece of its reasoning.
func (a *answer) reasons() {
	a.result.Reasoned = true
	if a.reasoning != nil {
		a.reasoning()
	}
}

// complete records that the reply is complete, and ends the request after wait.
func (a *answer) complete(wait time.Duration) {
	a.whole = true
	if a.wait == nil {
		a.wait = time.AfterFunc(wait, a.cancel)
	} else {
		a.wait.Reset(wait)
	}
}

// finishReason returns the provider's finish reason in lower case, or "other" if it is not an identifier. It returns "" for
// an empty word.
func finishReason(word string) string {
	word = strings.ToLower(word)
	if word == "" || isIdentifier(word) {
		return word
	}
	return "other"
}
