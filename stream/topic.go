package stream

import (
	"context"
	"sort"
	"sync"
	"time"
)

// History reads the messages of a topic that are no longer in memory. It may be called from any goroutine.
type History interface {
	// EntriesFrom returns messages of the topic in their order: those after id, or from id on if inclusive; at most
	// limit of them. A reply that is still streaming ends the list and is not in it: its topic has it in memory, or
	// will have it in a moment.
	EntriesFrom(ctx context.Context, topic, id string, inclusive bool, limit int) ([]*Entry, error)
}

// tailKept is how long a reply stays in its topic after it ended, and maxTail how many messages do at most. Viewers
// that are further behind read history.
const (
	tailKept = 10 * time.Second
	maxTail  = 8
)

// Hub holds the topics that somebody views or writes. All its methods may be called from any goroutine.
type Hub struct {
	mu     sync.Mutex
	topics map[string]*Topic // guarded by mu
}

// NewHub returns an empty hub.
func NewHub() *Hub { return &Hub{topics: make(map[string]*Topic)} }

// Open returns the topic of that name, and holds it: every Open is followed by one Close of the topic.
func (h *Hub) Open(name string) *Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t == nil {
		t = &Topic{hub: h, name: name, version: 1}
		h.topics[name] = t
	}
	t.holds++
	return t
}

// lookup returns the topic if somebody holds it, else nil.
func (h *Hub) lookup(name string) *Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[name]
}

// Reply returns the reply with that id if it is in memory here, live or just ended, else nil.
func (h *Hub) Reply(topic, id string) *Reply {
	t := h.lookup(topic)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(id); e != nil {
		return e.Reply
	}
	return nil
}

// Clear tells the viewers of a topic that its history up to and including the message id was removed; once.
func (h *Hub) Clear(topic, id string) {
	if t := h.lookup(topic); t != nil {
		t.clear(id)
	}
}

// Compress tells the viewers of a topic that its context was compressed. Who is not viewing is not told.
func (h *Hub) NotifySummarised(topic string, how SummaryStats) {
	if t := h.lookup(topic); t != nil {
		t.compress(how)
	}
}

// Remove tells the viewers of a topic that its session is gone: how is Deleted or Expired.
func (h *Hub) Remove(topic string, how EventKind) {
	if t := h.lookup(topic); t != nil {
		t.remove(how)
	}
}

// Topics returns how many topics are held, for metrics.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Topic is a session as its viewers see it. Its newest messages, the tail, are in memory and shared by all viewers;
// what lies before them is read from history.
type Topic struct {
	// static
	hub  *Hub
	name string

	holds int // guarded by hub.mu

	mu      sync.Mutex
	tail    []*Entry // in the order of their ids
	from    string   // if covered: every message after this one is in the tail
	covered bool
	// version changes whenever a look at history may find more than the last look did.
	version uint64
	clears  uint64    // how often the history was removed
	cleared string    // the last message that was removed
	gone    EventKind // Deleted or Expired once the session is gone
	// compression is the newest, and compressions counts them.
	compression  *SummaryStats
	compressions uint64
	// parked are the viewers that have been shown everything. Only they are touched when there is more, so a viewer
	// that is stuck in a write costs the writer nothing.
	parked []*Viewer
	spare  []*Viewer // parked's other buffer
	trim   *time.Timer
}

// Name returns the name the topic was opened by.
func (t *Topic) Name() string { return t.name }

// Unwatched reports whether the topic is held only once: by whoever asks.
func (t *Topic) HasOneHolder() bool {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	return t.holds == 1
}

// Close gives up one hold of the topic.
func (t *Topic) Close() {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	t.holds--
	if t.holds > 0 {
		return
	}
	delete(t.hub.topics, t.name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trim != nil {
		t.trim.Stop()
	}
}

// Publish shows new messages to the viewers. They follow the message previous ("" if they are the session's first)
// with nothing between, and their ids rise. Those that are not above what was published before are left out: they are
// history's.
func (t *Topic) Publish(previous string, entries ...*Entry) {
	t.mu.Lock()
	if last := len(t.tail) - 1; last >= 0 {
		for len(entries) > 0 && entries[0].ID <= t.tail[last].ID {
			previous, entries = entries[0].ID, entries[1:]
		}
	}
	if last := len(t.tail) - 1; !t.covered || (last >= 0 && t.tail[last].ID < previous) || (last < 0 && t.from < previous) {
		// There is a gap between the tail and these: what was before is history's.
		t.tail, t.from, t.covered = nil, previous, true
	}
	t.tail = append(t.tail, entries...)
	if over := len(t.tail) - maxTail; over > 0 {
		t.from = t.tail[over-1].ID
		t.tail = append([]*Entry(nil), t.tail[over:]...)
	}
	t.version++
	if t.trim != nil {
		t.trim.Stop()
	}
	for _, e := range entries {
		if e.Reply != nil {
			e.Reply.onChange(t.wake)
		}
	}
	t.mu.Unlock()
	t.wake()
}

// Settle says that the newest reply has ended: a while later the topic drops it from memory.
func (t *Topic) ScheduleTrim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trim == nil {
		t.trim = time.AfterFunc(tailKept, t.dropTail)
		return
	}
	t.trim.Reset(tailKept)
}

func (t *Topic) dropTail() {
	t.mu.Lock()
	if n := len(t.tail); n > 0 {
		if r := t.tail[n-1].Reply; r != nil {
			if _, ending := r.Snapshot(); ending == nil {
				t.mu.Unlock()
				return // a new turn came first
			}
		}
		t.from, t.tail = t.tail[n-1].ID, nil
		t.version++
	}
	t.mu.Unlock()
}

func (t *Topic) clear(id string) {
	t.mu.Lock()
	if id <= t.cleared { // it is known, from the node that did it and from the store
		t.mu.Unlock()
		return
	}
	t.clears++
	t.cleared = id
	kept := t.tail[:0:0]
	for _, e := range t.tail {
		if e.ID > id {
			kept = append(kept, e)
		}
	}
	t.tail = kept
	if t.covered {
		t.from = max(t.from, id)
	}
	t.version++
	t.mu.Unlock()
	t.wake()
}

func (t *Topic) compress(how SummaryStats) {
	t.mu.Lock()
	t.compression = &how
	t.compressions++
	t.mu.Unlock()
	t.wake()
}

func (t *Topic) remove(how EventKind) {
	t.mu.Lock()
	if t.gone == 0 {
		t.gone = how
	}
	t.mu.Unlock()
	t.wake()
}

// wake starts every parked viewer.
func (t *Topic) wake() {
	t.mu.Lock()
	if len(t.parked) == 0 {
		t.mu.Unlock()
		return
	}
	woken := t.parked
	t.parked, t.spare = t.spare[:0], nil
	for _, v := range woken {
		v.slot = 0
	}
	t.mu.Unlock()
	for _, v := range woken {
		v.wake()
	}
	clear(woken)
	t.mu.Lock()
	if t.spare == nil {
		t.spare = woken[:0]
	}
	t.mu.Unlock()
}

// park and unpark are called with mu held.
func (t *Topic) park(v *Viewer) {
	if v.slot == 0 {
		t.parked = append(t.parked, v)
		v.slot = len(t.parked)
	}
}

func (t *Topic) unpark(v *Viewer) {
	if v.slot == 0 {
		return
	}
	last := len(t.parked) - 1
	moved := t.parked[last]
	t.parked[v.slot-1] = moved
	moved.slot = v.slot
	t.parked[last] = nil
	t.parked = t.parked[:last]
	v.slot = 0
}

// find returns the tail's entry of that id; called with mu held.
func (t *Topic) find(id string) *Entry {
	i := sort.Search(len(t.tail), func(i int) bool { return t.tail[i].ID >= id })
	if i < len(t.tail) && t.tail[i].ID == id {
		return t.tail[i]
	}
	return nil
}

// following returns the tail's first entry that a viewer at p has not seen whole; called with mu held.
func (t *Topic) following(p Position) *Entry {
	i := sort.Search(len(t.tail), func(i int) bool {
		return t.tail[i].ID > p.ID || t.tail[i].ID == p.ID && !p.Ended
	})
	if i < len(t.tail) {
		return t.tail[i]
	}
	return nil
}

// covers reports whether all that lies after p is in the tail; called with mu held.
func (t *Topic) covers(p Position) bool {
	return t.covered && (p.ID > t.from || p.ID == t.from && p.Ended)
}
