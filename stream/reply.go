package stream

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

// Reply is an append-only text with a state. One goroutine writes it (Append, Flush, End); any number read it.
//
// The bytes of the text never change: a slice that a reader got stays valid when the text grows, so readers encode
// and send outside every lock.
type Reply struct {
	// static
	ID string

	mu      sync.Mutex
	text    []byte  // guarded by mu; whole characters only
	ending  *Ending // guarded by mu; set once
	changed func()  // guarded by mu; wakes the topic's viewers; nil until the reply is published

	// owned by the writer
	held []byte // the bytes so far of an incomplete character
}

// Ending is how a reply ended. It is decided once, and durable before any viewer is shown it.
type Ending struct {
	State State
	// Message is the final message as JSON; its content is authoritative. It is nil if the session was gone before
	// the reply could end in it: viewers are shown what happened to the session instead.
	Message []byte
	// Error is the public error as JSON, if the reply failed.
	Error []byte
}

// NewReply returns an empty, streaming reply.
func NewReply(id string) *Reply { return &Reply{ID: id} }

// EndedReply returns a reply that has ended, for history.
func EndedReply(id, text string, ending Ending) *Reply {
	return &Reply{ID: id, text: []byte(text), ending: &ending}
}

// Append adds text from the model. An incomplete character waits for its remaining bytes; invalid UTF-8 becomes
// U+FFFD. After End it does nothing. Only the writer may call it.
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

// Flush completes the text: an incomplete character becomes U+FFFD. Only the writer may call it.
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

// End ends the reply and wakes its viewers. Only the first call has an effect; it reports whether this was it.
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

// Snapshot returns the text so far, and the ending or nil while the reply is streaming. The text must not be changed.
func (r *Reply) Snapshot() (text []byte, ending *Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text, r.ending
}

// onChange sets the function that is called, without a lock of the reply held, when the reply has grown or ended.
func (r *Reply) onChange(changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// splitIncomplete cuts an incomplete character off the end of b, if more bytes could complete it.
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

// appendValid appends b and replaces each run of invalid UTF-8 by U+FFFD.
func appendValid(dst, b []byte) []byte {
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte(string(utf8.RuneError)))
	}
	return append(dst, b...)
}

// cutDelta returns the longest prefix of text with at most MaxDelta bytes and no split character.
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
