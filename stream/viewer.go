package stream

import (
	"context"
	"unicode/utf8"
)

// readAhead is the number of messages that a viewer reads from history at once: few, so that a thousand viewers that are
// far behind hold little memory.
const readAhead = 4

// Viewer is a position in a topic. Only one goroutine at a time may call Next.
//
// A viewer is running or parked. While it is running, its owner is about to call Next. When Next has no more events, it
// parks the viewer. Once there are more, the topic calls wake, once, from any goroutine. A new viewer is running.
type Viewer struct {
	// static
	topic   *Topic
	history History
	wake    func()

	// owned by the goroutine that calls Next
	position Position
	entry    *Entry   // the message that is being shown; nil between two messages
	page     []*Entry // messages read from history and not yet shown
	asOf     uint64   // the topic's version when history was last read
	read     uint64   // the topic's version when history had nothing more to read
	clears   uint64
	// summaries is the topic's number of summaries at the last call of Next.
	summaries uint64

	// guarded by topic.mu
	slot   int // index in topic.parked, plus 1; 0 while running
	closed bool
}

// Subscribe returns a viewer that misses nothing that is published from now on. The viewer holds the topic until its
// Close, and reads from history the messages that are not in memory. Call Start with the position to begin at before the
// first Next; without Start, the view begins with the first message. The topic calls wake without a lock held; wake must
// not block.
func (h *Hub) Subscribe(topic string, history History, wake func()) *Viewer {
	t := h.Open(topic)
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Viewer{topic: t, history: history, wake: wake, clears: t.clears, summaries: t.summaries, position: After("")}
}

// Start sets the position where Next begins.
func (v *Viewer) Start(position Position) {
	if position.ID == "" {
		position.Ended = true // no message has the id "", so none must be shown
	}
	v.position = position
}

// Topic returns the topic that the viewer is subscribed to.
func (v *Viewer) Topic() *Topic { return v.topic }

// Close ends the view. A wake that has already started may still arrive. Call Close once, from any goroutine.
func (v *Viewer) Close() {
	v.topic.mu.Lock()
	v.closed = true
	v.topic.unpark(v)
	v.topic.mu.Unlock()
	v.topic.Close()
}

// Next returns the next event. If there is none, ok is false and the viewer is parked; the topic calls wake once when
// there is one. An error comes from reading history, and Next may then be called again.
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
		v.closed = true // this is the last event, so never park the viewer again
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

// nextEntry sets v.entry to the next message to show, from the tail or from the page that was read. It reports whether
// there is one. topic.mu must be held.
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

// upToTail reports whether no message lies between the position and the tail. Either the tail reaches back to the
// position, or history has not changed since it had nothing more. topic.mu must be held.
func (v *Viewer) upToTail() bool {
	return v.topic.covers(v.position) || v.read == v.topic.version
}

// show returns the next event of e. If there is none, it sets v.entry to nil if e is finished, and keeps v.entry if e may
// have more later. topic.mu must be held.
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
		from++ // only a made-up cursor has an offset inside a character
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
		return Event{}, false // the viewer is shown Deleted, Expired or Cleared instead
	}
	return Event{Kind: Ended, Entry: e, Ending: ending, After: v.position}, true
}

// readHistory reads a page after the position. An empty page means that the viewer has caught up with version asOf of the
// topic.
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
