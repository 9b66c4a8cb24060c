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
	lineBuffer = 4 << 10  // holds a plain line many times over; longer ones are gathered apart
	maxLine    = 1 << 20  // of one line
	maxAnswer  = 64 << 20 // of a whole answer, which has a hundred times the bytes of its text

	// lingerUsage is how long we wait, after the finish reason, for usage and [DONE]; lingerEnd, after [DONE], for the
	// end of the body, with which the connection can be used again.
	lingerUsage = 3 * time.Second
	lingerEnd   = 50 * time.Millisecond
)

// answer reads the events of one response's body. One goroutine owns it.
type answer struct {
	reader *bufio.Reader
	write  func([]byte)
	cancel context.CancelFunc // ends the request

	size   int    // bytes read so far
	long   []byte // a line that did not fit reader
	shape  shape
	text   text
	spoke  bool // text was written
	events bool // any event came

	whole  bool        // the model said that the reply is whole
	done   bool        // [DONE] came
	linger *time.Timer // runs once whole, and ends the request
	result stream.Result
}

// read reads until the reply is over; it returns nil only if the model said that the reply is whole.
func (a *answer) read() error {
	err := a.readEvents()
	if a.linger != nil {
		a.linger.Stop()
	}
	if rest := a.text.end(); len(rest) > 0 {
		a.write(rest)
	}
	if a.whole {
		return nil // whatever came since: an error, garbage, a cut
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
			return failure(messageBrokeOff, &cause{err: plain(readErr), retry: !a.spoke})
		}
	}
}

var errTooLarge = errors.New("over the bound")

// line returns the next line without its end; it is valid until the next call. The last line of a body may come beside
// an error, and may then be a part of one.
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

// event takes in one line. Every data line is an event by itself: none of the servers splits one, and some leave out
// the blank line that should end it.
func (a *answer) event(line []byte) error {
	if len(line) == 0 || a.done {
		return nil
	}
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		if kind, ok := bytes.CutPrefix(line, []byte("event:")); ok && string(bytes.TrimSpace(kind)) == "error" {
			return failure(messageFailed, &cause{what: "an error within the answer"})
		}
		a.write(nil) // a comment that keeps the connection alive, or a field of no meaning here
		return nil
	}
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		a.events, a.done = true, true
		a.isWhole(lingerEnd)
		return nil
	}
	if content, ok := a.shape.scan(data); ok { // nearly every line of an answer
		a.events = true
		a.say(content)
		return nil
	}
	return a.chunk(data)
}

// chunk takes in an event of any shape.
func (a *answer) chunk(data []byte) error {
	c, err := decodeChunk(data)
	if err != nil {
		return failure(messageUnreadable, &cause{err: errUnreadable})
	}
	a.events = true
	// The last count wins: some servers count in every event, and one asked for two choices counts each.
	if usage := c.usage(); usage != nil {
		a.result.Usage = usage
	}
	if c.failed() {
		return reported(c.Error)
	}
	said := false
	for i := range c.Choices {
		choice := &c.Choices[i]
		if choice.Index != 0 {
			continue
		}
		content, err := choice.content()
		if err != nil {
			return failure(messageUnreadable, &cause{err: err})
		}
		a.say(content)
		said = true
		if reason := choice.reason(); reason == "error" {
			return failure(messageFailed, &cause{what: "finish reason error"})
		} else if reason != "" {
			a.result.FinishReason = reason
			a.isWhole(lingerUsage)
		}
	}
	if !said {
		a.write(nil)
	}
	return nil
}

// say writes the inside of a JSON string to the reply.
func (a *answer) say(content []byte) {
	a.spoke = a.spoke || len(content) > 0
	a.write(a.text.decode(content))
}

// isWhole notes that the model said that the reply is whole: it waits no longer than that for what else may come.
func (a *answer) isWhole(linger time.Duration) {
	a.whole = true
	if a.linger == nil {
		a.linger = time.AfterFunc(linger, a.cancel)
	} else {
		a.linger.Reset(linger)
	}
}

// finishReason is the provider's word if it is one, in lower case.
func finishReason(word string) string {
	word = strings.ToLower(word)
	if word == "" || isIdentifier(word) {
		return word
	}
	return "other"
}
