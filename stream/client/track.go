package client

import (
	"cmp"
	"math"
)

// remembered is the maximum number of messages in a track. It may be small: a resumed subscription begins at the cursor, so
// the server repeats only few messages.
const remembered = 256

// atEnd stands for the number of bytes of a message that was seen completely.
const atEnd = math.MaxInt

// verdict is the decision of [track.take] about a frame.
type verdict int

const (
	fresh verdict = iota // the frame has a new event: yield the event
	known                // the frame has nothing new: skip the frame
	gap                  // text before the frame is missing: request the missing text
)

// track records which events of a session the caller has got. It converts frames to events, and skips text that the
// caller has got before. track does no I/O. The zero value is a track without events.
type track struct {
	cursor string         // the cursor from which to resume; "" means the next event
	seen   map[string]int // by message id: the number of bytes that the caller has got, or atEnd
	order  []string       // the keys of seen, oldest first
}

// reset removes all records. The track continues from cursor.
func (k *track) reset(cursor string) { *k = track{cursor: cursor} }

// take converts a frame to an event. If jump is true, take accepts a delta even if text before the delta is missing. The
// caller then gets the missing text with the terminal frame.
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
	case "reply.reasoning":
		return Event{Type: Reasoning, SessionID: f.SessionID, MessageID: f.MessageID}, fresh
	case "context.compressed":
		return Event{
			Type: Compressed, SessionID: f.SessionID,
			Summarised: f.Summarised, Dropped: f.Dropped, TokensBefore: f.TokensBefore, TokensAfter: f.TokensAfter,
		}, fresh
	}
	return Event{}, known // a newer server may send unknown types: skip such a frame
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
	if !ok { // the subscription began in the middle of the reply
		seen = f.Offset
	}
	end := f.Offset + len(f.Delta)
	switch {
	case f.Offset > seen && !jump:
		return Event{}, gap
	case end <= seen: // keep k.cursor, because f.Cursor is not further
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

// note records that the caller has got seen bytes of a message. It also records the cursor, unless the cursor is "".
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
