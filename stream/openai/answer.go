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
	lineBuffer = 4 << 10  // bytes, many times a usual line; answer.long collects a longer line
	maxLine    = 1 << 20  // bytes of one line
	maxAnswer  = 64 << 20 // bytes of a whole response, which is about a hundred times as large as its text

	// usageWait is the timeout for usage and [DONE] after the finish reason. endWait is the timeout for the end of the
	// body after [DONE]: the connection can be reused only if the body was read to its end.
	usageWait = 3 * time.Second
	endWait   = 50 * time.Millisecond
)

// answer reads the events of one response. Only one goroutine uses it.
type answer struct {
	reader *bufio.Reader
	write  func([]byte)
	cancel context.CancelFunc // ends the request

	size   int    // bytes read so far
	long   []byte // collects a line that is longer than reader's buffer
	shape  shape
	text   text
	wrote  bool // text was passed to write
	events bool // an event arrived

	whole  bool        // the model said that the reply is complete
	done   bool        // [DONE] arrived
	wait   *time.Timer // ends the request; runs once whole is true
	result stream.Result
}

// read reads until the response ends. It returns nil only if the model said that the reply is complete.
func (a *answer) read() error {
	err := a.readEvents()
	if a.wait != nil {
		a.wait.Stop()
	}
	if rest := a.text.end(); len(rest) > 0 {
		a.write(rest)
	}
	if a.whole {
		return nil // ignore an error after the end: of the model, the parser or the connection
	}
	return err
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

// line returns the next line without its line end. It is valid until the next call. The last line of a body may come
// together with an error, and may then be incomplete.
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

// event reads one line. It takes every data line as a complete event: no known server splits an event, and some omit the
// blank line that should end it.
func (a *answer) event(line []byte) error {
	if len(line) == 0 || a.done {
		return nil
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		if kind, ok := bytes.CutPrefix(line, []byte("event:")); ok && string(bytes.TrimSpace(kind)) == "error" {
			return failure(messageFailed, &cause{what: "an error within the answer"})
		}
		a.write(nil) // a keep-alive comment or an unused field: the model is alive
		return nil
	}
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		a.events, a.done = true, true
		a.complete(endWait)
		return nil
	}
	if content, ok := a.shape.scan(data); ok { // the case of nearly every line
		a.events = true
		a.writeContent(content)
		return nil
	}
	return a.chunk(data)
}

// chunk reads an event of any shape with encoding/json.
func (a *answer) chunk(data []byte) error {
	c, err := decodeChunk(data)
	if err != nil {
		return failure(messageUnreadable, &cause{err: errUnreadable})
	}
	a.events = true
	// The last usage wins: some servers send it in every event.
	if usage := c.usage(); usage != nil {
		a.result.Usage = usage
	}
	if c.failed() {
		return reported(c.Error)
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
		a.writeContent(content)
		seen = true
		if reason := choice.reason(); reason == "error" {
			return failure(messageFailed, &cause{what: "finish reason error"})
		} else if reason != "" {
			a.result.FinishReason = reason
			a.complete(usageWait)
		}
	}
	if !seen {
		a.write(nil)
	}
	return nil
}

// writeContent decodes content, the inside of a JSON string, and writes it to the reply.
func (a *answer) writeContent(content []byte) {
	a.wrote = a.wrote || len(content) > 0
	a.write(a.text.decode(content))
}

// complete notes that the reply is complete, and ends the request after wait.
func (a *answer) complete(wait time.Duration) {
	a.whole = true
	if a.wait == nil {
		a.wait = time.AfterFunc(wait, a.cancel)
	} else {
		a.wait.Reset(wait)
	}
}

// finishReason returns the provider's word in lower case, or "other" if it is not an identifier.
func finishReason(word string) string {
	word = strings.ToLower(word)
	if word == "" || isIdentifier(word) {
		return word
	}
	return "other"
}
