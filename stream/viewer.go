package stream

import (
	"context"
	"unicode/utf8"
)

// readAhead is the number of messages that a viewer reads from history in one call. It is small, so that a thousand
// viewers that are far behind use little memory.
const readAhead = 4

// Viewer reads the events of a topic from a position on. Only one goroutine at a time may call Next.
//
// A viewer is running or parked. A new viewer is running: its owner must call Next until Next returns no event. Next then
// parks the viewer. When there may be a new event, the topic marks the viewer as running and calls wake once, from any
// goroutine.
type Viewer struct {
	// static
	topic   *Topic
	history History
	wake    func()

	// owned by the goroutine that calls Next
	position Position
	entry    *Entry   // the message that is being shown; nil between two messages
	page     []*Entry // messages that were read from history and not yet shown
	asOf     uint64   // the topic's version just before the last read of history, or of the position for StartAtEnd
	read     uint64   // history has no more messages for this viewer while the topic has this version
	// clears and summaries are copies of the topic's counters. If a counter of the topic is greater than its copy, the
	// viewer must be shown an event.
	clears, summaries uint64
	// signs is the number of signs of reasoning that the viewer was shown of entry. If the reply has more, the viewer must be
	// shown an event.
	signs uint32

	// guarded by topic.mu
	slot   int // index in topic.parked, plus 1; 0 while the viewer is running
	closed bool
}

// Subscribe returns a new viewer of the topic with that name. The viewer holds the topic until Close. It begins with the
// first message; call Start before the first Next for another position. It reads messages that are not in memory from
// history. The topic calls wake while it holds no lock. wake must not block.
func (h *Hub) Subscribe(topic string, history History, wake func()) *Viewer {
	t := h.Open(topic)
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Viewer{
		topic: t, history: history, wake: wake, clears: t.clears, summaries: t.summaries, position: After(""), asOf: t.version,
	}
}

// Start sets the position at which Next begins.
func (v *Viewer) Start(position Position) {
	if position.ID == "" {
		position.Ended = true // no message has the id "", so Next must not look for the rest of such a message
	}
	v.position = position
}

// StartAtEnd is like Start for the end of the topic, which the caller must have read after Subscribe. Next then reads history
// only if the topic has changed since Subscribe.
func (v *Viewer) StartAtEnd(position Position) {
	v.Start(position)
	v.read = v.asOf
}

// Topic returns the topic that the viewer is subscribed to.
func (v *Viewer) Topic() *Topic { return v.topic }

// Close ends the subscription. The topic may still call wake shortly after Close. Call Close once, from any goroutine.
func (v *Viewer) Close() {
	v.topic.mu.Lock()
	v.closed = true
	v.topic.unpark(v)
	v.topic.mu.Unlock()
	v.topic.Close()
}

// Next returns the next event. If there is no event, ok is false and the viewer is parked. The topic calls wake once, as
// soon as there may be an event. err is an error of history; the caller may then call Next again.
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

// progress is the result of step: step found an event, parked the viewer, or needs more messages from history.
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
		v.closed = true // this event is the topic's last one, so later calls return no event
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

// nextEntry sets v.entry to the next message to show, and returns true. It takes the message from the tail or from
// v.page. If neither has the next message, nextEntry returns false. topic.mu must be held.
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

// upToTail reports whether no message is missing between the viewer's position and the tail. This is true if the tail
// contains every message after the position. It is also true if the viewer has read history to its end and the version
// has not changed since. topic.mu must be held.
func (v *Viewer) upToTail() bool {
	return v.topic.covers(v.position) || v.read == v.topic.version
}

// show returns the next event of message e. It returns false if e has no event now. If the viewer has been shown all of e,
// show sets v.entry to nil. topic.mu must be held.
func (v *Viewer) show(e *Entry) (Event, bool) {
	if e.ID != v.position.ID {
		v.position, v.signs = Position{ID: e.ID, Ended: e.Reply == nil}, 0
		return Event{Kind: Created, Entry: e, After: v.position}, true
	}
	if v.position.Ended || e.Reply == nil {
		v.position, v.entry = After(e.ID), nil
		return Event{}, false
	}
	text, ending := e.Reply.Read(v.position.Offset)
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		v.position.Offset++ // the server issues no offset inside a character, so the client has invented this one
		text, ending = e.Reply.Read(v.position.Offset)
	}
	if len(text) > 0 {
		from, delta := v.position.Offset, text[:prefix(text, MaxDelta)]
		v.position.Offset += len(delta)
		return Event{Kind: Delta, Entry: e, Offset: from, Delta: delta, After: v.position}, true
	}
	if ending == nil {
		return v.showReasoning(e)
	}
	v.position, v.entry = After(e.ID), nil
	if ending.Message == nil {
		return Event{}, false // the viewer is shown Deleted, Expired or Cleared instead of Ended
	}
	return Event{Kind: Ended, Entry: e, Ending: ending, After: v.position}, true
}

// showReasoning returns the event Reasoning if the model of a reply has reasoned since the last such event. It returns false if the
// viewer has been shown text of the reply. topic.mu must be held.
func (v *Viewer) showReasoning(e *Entry) (Event, bool) {
	if v.position.Offset > 0 {
		return Event{}, false
	}
	signs := e.Reply.reasoningSigns()
	if signs == v.signs {
		return Event{}, false
	}
	v.signs = signs
	return Event{Kind: Reasoning, Entry: e, After: v.position}, true
}

// readHistory reads the next messages after the position into v.page. If there are none, the viewer has read all history
// of the topic's version asOf.
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
