package client

import (
	"cmp"
	"math"
)

// remembered is the number of messages for which a track stores what was seen. A resumed subscription begins at the
// cursor, so few messages come again.
const remembered = 256

// atEnd marks a message whose end was seen.
const atEnd = math.MaxInt

// verdict says what to do with a frame.
type verdict int

const (
	fresh verdict = iota // yield its event
	known                // skip it: nothing is new
	gap                  // ask for the text before it, which is missing
)

// track records what was seen of one session. It turns frames into events, each piece of text once. It does no I/O. The
// zero value has seen nothing.
type track struct {
	cursor string         // the cursor to resume from; "" means the present
	seen   map[string]int // by message id: bytes seen, or atEnd
	order  []string       // the keys of seen, oldest first
}

// reset forgets everything that was seen. The track continues from cursor.
func (k *track) reset(cursor string) { *k = track{cursor: cursor} }

// take turns a frame into an event. If jump is true, it accepts a delta although text before that is missing: the
// terminal frame has the whole text.
func (k *track) take(f *frame, jump bool) (Event, verdict) {
	switch f.Type {
	case "message.created":
		return k.created(f)
	case "message.delta":
		return k.delta(f, jump)
	case "message.completed", "message.cancelled", "message.failed", "message.interrupted":
		return k.end(f)
	case "session.cleared":
		k.reset(k.cursor)
		return Event{Type: Cleared, SessionID: f.SessionID, Recovered: true}, fresh
	case "session.deleted":
		return Event{Type: Deleted, SessionID: f.SessionID}, fresh
	case "session.expired":
		return Event{Type: Expired, SessionID: f.SessionID}, fresh
	case "context.compressed":
		return Event{
			Type: Compressed, SessionID: f.SessionID,
			Summarised: f.Summarised, Dropped: f.Dropped, TokensBefore: f.TokensBefore, TokensAfter: f.TokensAfter,
		}, fresh
	}
	return Event{}, known // a type of a newer server
}

func (k *track) created(f *frame) (Event, verdict) {
	if f.Message == nil {
		return Event{}, known
	}
	id := f.Message.MessageID
	if _, ok := k.seen[id]; ok {
		return Event{}, known
	}
	seen := atEnd
	if f.Message.Status == "streaming" {
		seen = 0
	}
	k.note(id, seen, f.Cursor)
	return Event{Type: Created, SessionID: f.SessionID, MessageID: id, Message: f.Message, Cursor: f.Cursor}, fresh
}

func (k *track) delta(f *frame, jump bool) (Event, verdict) {
	seen, ok := k.seen[f.MessageID]
	if !ok { // the subscription began in mid-reply
		seen = f.Offset
	}
	end := f.Offset + len(f.Delta)
	switch {
	case f.Offset > seen && !jump:
		return Event{}, gap
	case end <= seen: // keep our cursor, which is at least as far
		return Event{}, known
	}
	k.note(f.MessageID, end, f.Cursor)
	skip := max(0, seen-f.Offset)
	return Event{
		Type: Delta, SessionID: f.SessionID, MessageID: f.MessageID, Offset: f.Offset + skip, Delta: f.Delta[skip:], Cursor: f.Cursor,
	}, fresh
}

func (k *track) end(f *frame) (Event, verdict) {
	if f.Message == nil || k.seen[f.Message.MessageID] == atEnd {
		return Event{}, known
	}
	k.note(f.Message.MessageID, atEnd, f.Cursor)
	f.Message.Error = cmp.Or(f.Message.Error, f.Error)
	return Event{Type: End, SessionID: f.SessionID, MessageID: f.Message.MessageID, Message: f.Message, Cursor: f.Cursor}, fresh
}

// note records how much of a message was seen, and the cursor, unless that is "".
func (k *track) note(id string, seen int, cursor string) {
	k.cursor = cmp.Or(cursor, k.cursor)
	if _, ok := k.seen[id]; !ok {
		if k.seen == nil {
			k.seen = make(map[string]int)
		}
		if k.order = append(k.order, id); len(k.order) > remembered {
			delete(k.seen, k.order[0])
			k.order = k.order[1:]
		}
	}
	k.seen[id] = seen
}
