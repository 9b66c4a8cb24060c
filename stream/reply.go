package stream

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

// Reply is an append-only text with a state. Only one goroutine, the writer, may call Append and Flush. Any goroutine may
// call the other methods.
//
// The bytes of the text never change. A slice of the text stays valid while the text grows, so viewers encode and send
// the slice without holding mu.
type Reply struct {
	// static
	ID string

	mu      sync.Mutex
	text    []byte  // guarded by mu; whole characters only
	ending  *Ending // guarded by mu; set once
	changed func()  // guarded by mu; wakes the topic's viewers; nil until the reply is published

	// owned by the writer
	held []byte // the first bytes of an incomplete character
}

// Ending holds the final state of a reply. An Ending never changes. Before a caller calls [Reply.End], it writes the ending
// to the store. So viewers see only durable endings.
type Ending struct {
	State State
	// Message is the final message as JSON. Its content replaces the text that viewers have seen. Message is nil if the
	// session was removed or cleared before the reply ended. Viewers are then shown Deleted, Expired or Cleared instead.
	Message []byte
	// Error is the public error as JSON if the reply failed, else nil.
	Error []byte
}

// NewReply returns an empty, streaming reply.
func NewReply(id string) *Reply { return &Reply{ID: id} }

// EndedReply returns a reply that has ended, with its whole text. A [History] returns such replies.
func EndedReply(id, text string, ending Ending) *Reply {
	return &Reply{ID: id, text: []byte(text), ending: &ending}
}

// Append appends delta to the text. It holds an incomplete character back until the remaining bytes arrive, and replaces
// invalid UTF-8 with U+FFFD. After End, Append has no effect. Only the writer may call Append.
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

// Flush appends U+FFFD in place of an incomplete character that Append holds back. The writer calls Flush after the last
// Append.
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

// End ends the reply, wakes its viewers and returns true. If the reply has ended before, End only returns false.
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

// Snapshot returns the text so far, and the ending; the ending is nil while the reply is streaming. The caller must not
// change the text.
func (r *Reply) Snapshot() (text []byte, ending *Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text, r.ending
}

// onChange sets the function that the reply calls each time it has grown or ended. The reply holds no lock during the call.
func (r *Reply) onChange(changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// splitIncomplete splits b before an incomplete character at the end of b. If b ends with a whole or an invalid character,
// rest is nil.
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

// appendValid appends b to dst, with U+FFFD in place of each run of invalid UTF-8.
func appendValid(dst, b []byte) []byte {
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte(string(utf8.RuneError)))
	}
	return append(dst, b...)
}

// cutDelta returns the longest prefix of text that has at most MaxDelta bytes and does not split a character.
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
