package stream

import (
	"context"
	"unicode/utf8"
)

// readAhead is how many messages a viewer reads from history at once: few, so that a thousand viewers that are far
// behind hold little memory.
const readAhead = 4

// Viewer is a position in a topic. One goroutine at a time calls Next; wake may be called from any.
//
// A viewer is running or parked. While it is running, somebody is about to call Next. It is parked when Next had
// nothing more; wake is then called once when there is more. A new viewer is running.
type Viewer struct {
	// static
	topic   *Topic
	history History
	wake    func()

	// owned by the goroutine that calls Next
	position Position
	entry    *Entry   // the message that is being shown; nil between two
	page     []*Entry // read from history, not yet shown
	asOf     uint64   // the topic's version when history was last read
	read     uint64   // the topic's version when history had nothing more to read
	clears   uint64
	// summaries is the topic's number when the viewer last looked.
	summaries uint64

	// guarded by topic.mu
	slot   int // its place in parked, from 1; 0 while running
	closed bool
}

// Subscribe returns a viewer without a position. It misses nothing that is published from now on. The caller finds
// out where to begin and calls Start before the first Next; without Start, the view begins with the first message.
// The viewer reads from history what is not in memory, and holds the topic until its Close. wake is called without a
// lock held and must not block.
func (h *Hub) Subscribe(topic string, history History, wake func()) *Viewer {
	t := h.Open(topic)
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Viewer{topic: t, history: history, wake: wake, clears: t.clears, summaries: t.summaries, position: After("")}
}

// Start sets the position where Next begins.
func (v *Viewer) Start(position Position) {
	if position.ID == "" {
		position.Ended = true // no message has this id, so there is nothing of it to show
	}
	v.position = position
}

// Topic returns the topic.
func (v *Viewer) Topic() *Topic { return v.topic }

// Close ends the view. A wake that is under way may still arrive. Call it once, from any goroutine.
func (v *Viewer) Close() {
	v.topic.mu.Lock()
	v.closed = true
	v.topic.unpark(v)
	v.topic.mu.Unlock()
	v.topic.Close()
}

// Next returns the next event. If ok is false, there is none: the viewer is parked, and wake is called once when
// there is more. An error comes from reading history; Next may be called again.
func (v *Viewer) Next(ctx context.Context) (event Event, ok bool, err error) {
	for {
		event, outcome := v.step()
		switch outcome {
		case found:
			return event, true, nil
		case parked:
			return Event{}, false, nil
		}
		if err := v.readHistory(ctx); err != nil {
			return Event{}, false, err
		}
	}
}

// progress is the result of a step.
type progress uint8

const (
	found progress = iota
	parked
	needsHistory
)

func (v *Viewer) step() (Event, progress) {
	t := v.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case v.closed:
		return Event{}, parked
	case t.gone != 0:
		v.closed = true // the last event: it will not be parked again
		return Event{Kind: t.gone, After: v.position}, found
	case v.clears != t.clears:
		v.clears, v.entry, v.page = t.clears, nil, nil
		if v.position.ID <= t.cleared {
			v.position = After(t.cleared)
		}
		return Event{Kind: Cleared, After: v.position}, found
	case v.summaries != t.summaries:
		v.summaries = t.summaries
		return Event{Kind: ContextSummarised, Summary: t.summary, After: v.position}, found
	}
	for {
		if v.entry == nil && !v.nextEntry() {
			if v.upToTail() {
				t.park(v)
				return Event{}, parked
			}
			v.asOf = t.version
			return Event{}, needsHistory
		}
		if event, ok := v.show(v.entry); ok {
			return event, found
		}
		if v.entry != nil {
			t.park(v)
			return Event{}, parked
		}
	}
}

// nextEntry sets the entry to show next, from the tail or from the page that was read; called with topic.mu held.
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

// upToTail reports whether no message lies between the position and the tail. Either the tail reaches back that far,
// or history was read since it last changed and had nothing more. Called with topic.mu held.
func (v *Viewer) upToTail() bool {
	return v.topic.covers(v.position) || v.read == v.topic.version
}

// show returns the next event of e. If there is none, v.entry tells why: nil if e is finished, else e has nothing
// new. Called with topic.mu held.
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
		from++ // an offset inside a character, made up by the client
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
		return Event{}, false // the session is gone, and Deleted, Expired or Cleared says so
	}
	return Event{Kind: Ended, Entry: e, Ending: ending, After: v.position}, true
}

// readHistory reads a page after the position. If it is empty, the viewer has caught up with the topic as it was when
// step looked.
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
