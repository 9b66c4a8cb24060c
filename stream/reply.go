package stream

import (
	"bytes"
	"sync"
	"time"
	"unicode/utf8"
)

// Reply is an append-only text with a state. Only one goroutine, the writer, may call Append, Flush and Join. Any
// goroutine may call the other methods.
//
// The bytes of the text never change. A part of the text stays valid while the text grows, so viewers encode and send
// the part without holding mu.
type Reply struct {
	// static
	ID string

	mu      sync.Mutex
	text    text    // guarded by mu; whole characters only
	ending  *Ending // guarded by mu; set once
	changed func()  // guarded by mu; wakes the topic's viewers; nil until the reply is published
	signs   uint32  // guarded by mu; number of signs that the model reasons

	// owned by the writer
	held   []byte    // the first bytes of an incomplete character
	limit  int       // maximum size of the text, in bytes; 0 for none
	full   bool      // the text was cut off at limit
	signed time.Time // the time of the last sign that the model reasons
}

// Ending holds the final state of a reply. An Ending never changes. Before a caller calls [Reply.End], it writes the ending
// to the store. So viewers see only durable endings.
type Ending struct {
	State State
	// Message is the final message. Its content replaces the text that viewers have seen. Message is nil if the session
	// was removed or cleared before the reply ended. Viewers are then shown Deleted, Expired or Cleared instead.
	Message *Document
	// Error is the public error as JSON if the reply failed, else nil.
	Error []byte
}

// NewReply returns an empty, streaming reply.
func NewReply(id string) *Reply { return &Reply{ID: id} }

// EndedReply returns a reply that has ended, with its whole text. A [History] returns such replies. The reply shares the
// memory of text.
func EndedReply(id, text string, ending Ending) *Reply {
	return &Reply{ID: id, text: textOf(text), ending: &ending}
}

// Append appends delta to the text. It holds an incomplete character back until the remaining bytes arrive, and replaces
// invalid UTF-8 with U+FFFD. After End, Append has no effect. If [Pump] has set a limit, Append cuts the text off there.
// Only the writer may call Append.
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
	if len(whole) == 0 || r.full {
		return
	}
	r.mu.Lock()
	if r.ending != nil {
		r.mu.Unlock()
		return
	}
	if !utf8.Valid(whole) {
		whole = bytes.ToValidUTF8(whole, []byte(string(utf8.RuneError)))
	}
	if r.limit > 0 && len(whole) > r.limit-r.text.size {
		whole, r.full = whole[:prefix(whole, r.limit-r.text.size)], true
	}
	r.text.append(whole)
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// reasoningEvery is the shortest time between two signs that the model reasons. A page only shows that the model is busy.
const reasoningEvery = time.Second

// reasons records that the model reasons. At most once in reasoningEvery, it tells the viewers of the reply. Only the writer may
// call reasons.
func (r *Reply) reasons() {
	now := time.Now()
	if now.Sub(r.signed) < reasoningEvery {
		return
	}
	r.signed = now
	r.mu.Lock()
	r.signs++
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// reasoningSigns returns the number of signs that the model reasons.
func (r *Reply) reasoningSigns() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signs
}

// End ends the reply, wakes its viewers and returns true. If the reply has ended before, End only returns false.
func (r *Reply) End(ending Ending) bool {
	r.mu.Lock()
	if r.ending != nil {
		r.mu.Unlock()
		return false
	}
	r.ending = &ending
	if m := ending.Message; m != nil && r.text.equals(m.Content) {
		r.text = textOf(m.Content) // so that the text is in memory once
	}
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
	return true
}

// Join joins the chunks of the text, so that the text is in memory once, and returns it. Only the writer may call Join,
// after the last Append.
func (r *Reply) Join() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	whole := r.text.String()
	r.text = textOf(whole)
	return whole
}

// Snapshot returns the text so far, and the ending; the ending is nil while the reply is streaming. It copies a text that
// is longer than one chunk. Read and Size never copy.
func (r *Reply) Snapshot() (text string, ending *Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String(), r.ending
}

// Read returns a part of the text that begins at offset, and the ending; the ending is nil while the reply is streaming.
// The part is empty if the reply has no text after offset; otherwise, more text may follow. The caller may keep the part.
// It must neither change the part nor append to it. The capacity shows where the chunk ends, so a store can recognise parts
// that follow each other in memory.
func (r *Reply) Read(offset int) (part []byte, ending *Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.from(offset), r.ending
}

// Size returns the size of the text so far, in bytes, and the ending; the ending is nil while the reply is streaming.
func (r *Reply) Size() (bytes int, ending *Ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.size, r.ending
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
