package stream

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

// Reply is an append-only text with a state. One goroutine writes it (Append, End); any number read it.
//
// The bytes of the text never change once they are there: a slice that a reader was given stays true after the text
// has grown, so readers encode and send outside every lock.
type Reply struct {
	// static
	ID string

	mu      sync.Mutex
	text    []byte  // guarded by mu; whole characters only
	ending  *Ending // guarded by mu; set once
	changed func()  // guarded by mu; wakes the topic's viewers, nil before the reply is published

	// owned by the writer
	held []byte // bytes of a character that has not fully arrived
}

// Ending is how a reply ended: decided once, and durable before anybody is shown it.
type Ending struct {
	State State
	// Message is the whole final message as JSON; its content is authoritative. Nil where the session was gone
	// before the reply could end in it: viewers are shown what became of the session instead.
	Message []byte
	// Error is the public error as JSON, where the reply failed.
	Error []byte
}

// NewReply returns an empty, streaming reply.
func NewReply(id string) *Reply { return &Reply{ID: id} }

// EndedReply returns a reply that is over, as history knows it.
func EndedReply(id, text string, ending Ending) *Reply {
	return &Reply{ID: id, text: []byte(text), ending: &ending}
}

// Append adds what the model said. A character that arrives in pieces shows when it is whole; bytes that are no UTF-8
// become U+FFFD. After End it does nothing. Only the reply's writer may call it.
func (r *Reply) Append(delta []byte) {
	if len(r.held) > 0 {
		delta = append(r.held, delta...)
		r.held = nil
	}
	whole, rest := splitIncomplete(delta)
	if len(rest) > 0 {
		r.held = append([]byte(nil), rest...)
	}
	r.append(whole)
}

// Flush ends the text: a character that never arrived whole becomes U+FFFD. Only the writer may call it.
func (r *Reply) Flush() {
	if len(r.held) > 0 {
		r.held = nil
		r.append([]byte(string(utf8.RuneError)))
	}
}

func (r *Reply) append(whole []byte) {
	if len(whole) == 0 {
		return
	}
	r.mu.Lock()
	if r.ending != nil {
		r.mu.Unlock()
		return
	}
	r.text = appendValid(r.text, whole)
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// End ends the reply and shows its viewers how. The first call decides; it reports whether this was it.
func (r *Reply) End(ending Ending) bool {
	r.mu.Lock()
	if r.ending != nil {
		r.mu.Unlock()
		return false
	}
	r.ending = &ending
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
	return true
}

// Snapshot returns the text so far and the ending, nil while the reply is streaming. The text must not be changed.
func (r *Reply) Snapshot() (text []byte, ending *Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text, r.ending
}

// onChange has changed called, without any lock of the reply held, whenever the reply has grown or ended.
func (r *Reply) onChange(changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// splitIncomplete cuts off the beginning of a character at the end of b, if there is one that more bytes could
// complete.
func splitIncomplete(b []byte) (whole, rest []byte) {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if !utf8.RuneStart(b[i]) {
			continue
		}
		if !utf8.FullRune(b[i:]) {
			return b[:i], b[i:]
		}
		break
	}
	return b, nil
}

// appendValid appends b; what is no UTF-8 in it becomes U+FFFD, one for each run of such bytes.
func appendValid(dst, b []byte) []byte {
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte(string(utf8.RuneError)))
	}
	return append(dst, b...)
}

// cutDelta returns the longest prefix of text that is at most MaxDelta bytes and ends with a whole character.
func cutDelta(text []byte) []byte {
	if len(text) <= MaxDelta {
		return text
	}
	n := MaxDelta
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
