package stream

import (
	"context"
	"unicode/utf8"
)

// readAhead is how many messages a viewer that is far behind reads from history at once.
const readAhead = 4

// Viewer is a position in a topic. One goroutine at a time calls Next; wake comes from any.
//
// A viewer is in one of two conditions. It is running: somebody is going to call Next. Or it is parked: Next said
// that there is nothing more, and wake will be called once when there is. A new viewer is running.
type Viewer struct {
	// static
	topic   *Topic
	history History
	wake    func()

	// owned by the goroutine that calls Next
	position Position
	entry    *Entry   // the message that is being shown, nil between two
	page     []*Entry // read from history, not yet shown
	asOf     uint64   // the topic's version when history was last asked
	read     uint64   // the topic's version when history had nothing more
	clears   uint64
	// compressions is how many of the topic's there were when the viewer last looked.
	compressions uint64

	// guarded by topic.mu
	slot   int // where it is parked, counted from 1; 0 is running
	closed bool
}

// Subscribe returns a viewer that has no position yet: whatever is published from now on, it will not miss. The
// caller finds out where to begin and calls Start before the first Next; without it the view begins with the first
// message. The viewer reads from history what is no
// longer in memory, and holds the topic until its Close. wake is called without any lock held and must not block.
func (h *Hub) Subscribe(topic string, history History, wake func()) *Viewer {
	t := h.Open(topic)
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Viewer{topic: t, history: history, wake: wake, clears: t.clears, compressions: t.compressions, position: After("")}
}

// Start sets the position that Next goes on from.
func (v *Viewer) Start(position Position) {
	if position.ID == "" {
		position.Ended = true // there is nothing of it to see
	}
	v.position = position
}

// Topic returns what is viewed.
func (v *Viewer) Topic() *Topic { return v.topic }

// Close ends the view. A wake that was on its way may still come. It may be called from any goroutine, once.
func (v *Viewer) Close() {
	v.topic.mu.Lock()
	v.closed = true
	v.topic.unpark(v)
	v.topic.mu.Unlock()
	v.topic.Close()
}

// Next returns what the viewer is shown next. Without one (ok is false) the viewer is parked, and wake will be
// called once when there is more. An error comes from reading history; Next may be called again after it.
func (v *Viewer) Next(ctx context.Context) (event Event, ok bool, err error) {
	for {
		event, found := v.step()
		switch found {
		case something:
			return event, true, nil
		case nothing:
			return Event{}, false, nil
		}
		if err := v.readHistory(ctx); err != nil {
			return Event{}, false, err
		}
	}
}

// finding is what a step found.
type finding uint8

const (
	something finding = iota
	nothing           // parked
	behind            // history must be read
)

func (v *Viewer) step() (Event, finding) {
	t := v.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case v.closed:
		return Event{}, nothing
	case t.gone != 0:
		v.closed = true // the last event: it will not be parked again
		return Event{Kind: t.gone, After: v.position}, something
	case v.clears != t.clears:
		v.clears, v.entry, v.page = t.clears, nil, nil
		if v.position.ID <= t.cleared {
			v.position = After(t.cleared)
		}
		return Event{Kind: Cleared, After: v.position}, something
	case v.compressions != t.compressions:
		v.compressions = t.compressions
		return Event{Kind: ContextSummarised, Summary: t.compression, After: v.position}, something
	}
	for {
		if v.entry == nil && !v.nextEntry() {
			if v.upToTail() {
				t.park(v)
				return Event{}, nothing
			}
			v.asOf = t.version
			return Event{}, behind
		}
		if event, ok := v.show(v.entry); ok {
			return event, something
		}
		if v.entry != nil {
			t.park(v)
			return Event{}, nothing
		}
	}
}

// nextEntry finds the entry to go on with, in the tail or in what was read ahead; called with topic.mu held.
func (v *Viewer) nextEntry() bool {
	if e := v.topic.following(v.position); e != nil && v.upToTail() {
		v.entry, v.page = e, nil
		return true
	}
	if len(v.page) == 0 {
		return false
	}
	v.entry, v.page = v.page[0], v.page[1:]
	if live := v.topic.find(v.entry.ID); live != nil {
		v.entry = live
	}
	return true
}

// upToTail reports whether nothing lies between the position and the tail: the tail reaches back so far, or history has
// been asked since it last changed, and had nothing; called with topic.mu held.
func (v *Viewer) upToTail() bool {
	return v.topic.covers(v.position) || v.read == v.topic.version
}

// show returns the next event of e. Without one, e is over if v.entry is nil, else it has nothing new; called with
// topic.mu held.
func (v *Viewer) show(e *Entry) (Event, bool) {
	if e.ID != v.position.ID {
		v.position = Position{ID: e.ID, Ended: e.Reply == nil}
		return Event{Kind: Created, Entry: e, After: v.position}, true
	}
	if v.position.Ended || e.Reply == nil {
		v.position, v.entry = After(e.ID), nil
		return Event{}, false
	}
	text, ending := e.Reply.Snapshot()
	from := v.position.Offset
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++ // a position that somebody made up
	}
	if from < len(text) {
		delta := cutDelta(text[from:])
		v.position.Offset = from + len(delta)
		return Event{Kind: Delta, Entry: e, Offset: from, Delta: delta, After: v.position}, true
	}
	if ending == nil {
		return Event{}, false
	}
	v.position, v.entry = After(e.ID), nil
	if ending.Message == nil {
		return Event{}, false // the session was gone first, and says so itself
	}
	return Event{Kind: Ended, Entry: e, Ending: ending, After: v.position}, true
}

// readHistory reads what follows the viewer's position. Where that is nothing, the viewer has caught up with the
// topic as it was when step looked.
func (v *Viewer) readHistory(ctx context.Context) error {
	page, err := v.history.EntriesFrom(ctx, v.topic.name, v.position.ID, !v.position.Ended, readAhead)
	if err != nil {
		return err
	}
	v.page = page
	if len(page) == 0 {
		v.read = v.asOf
	}
	return nil
}
