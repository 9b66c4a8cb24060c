package stream

import (
	"context"
	"sort"
	"sync"
	"time"
)

// History reads messages of a topic that are no longer in memory. It may be called from any goroutine.
type History interface {
	// EntriesFrom returns messages in their order, at most limit: those after id, or from id on if inclusive. The list
	// stops before a reply that is still streaming. The topic already has that reply in memory, or will have it in a
	// moment.
	EntriesFrom(ctx context.Context, topic, id string, inclusive bool, limit int) ([]*Entry, error)
}

const (
	// tailRetention is the time for which a reply stays in memory after its end: longer than a client takes to reconnect.
	tailRetention = 10 * time.Second
	// maxTail is the number of messages that stay in memory. Viewers that are further behind read history.
	maxTail = 8
)

// Hub holds the topics with viewers or a live reply on this node. Its methods may be called from any goroutine.
type Hub struct {
	mu     sync.Mutex
	topics map[string]*Topic // guarded by mu
}

// NewHub returns an empty hub.
func NewHub() *Hub { return &Hub{topics: make(map[string]*Topic)} }

// Open returns the topic with that name, creates it if necessary, and adds a holder. The caller must call Close on the
// topic once.
func (h *Hub) Open(name string) *Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t == nil {
		t = &Topic{hub: h, name: name, version: 1}
		h.topics[name] = t
	}
	t.holders++
	return t
}

// lookup returns the topic if it has a holder, else nil.
func (h *Hub) lookup(name string) *Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[name]
}

// Reply returns the reply with that id if this node has it in memory, live or just ended, else nil.
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

// Clear shows Cleared to the viewers of a topic: its history up to and including message id was removed. Repeating it is
// safe.
func (h *Hub) Clear(topic, id string) {
	if t := h.lookup(topic); t != nil {
		t.clear(id)
	}
}

// NotifySummarised shows ContextSummarised to the present viewers of a topic.
func (h *Hub) NotifySummarised(topic string, stats SummaryStats) {
	if t := h.lookup(topic); t != nil {
		t.notifySummarised(stats)
	}
}

// Remove shows how, which is Deleted or Expired, to the viewers of a topic whose session is gone.
func (h *Hub) Remove(topic string, how EventKind) {
	if t := h.lookup(topic); t != nil {
		t.remove(how)
	}
}

// Topics returns the number of topics, for metrics.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Topic is one session as its viewers see it. Its newest messages, the tail, are in memory and shared by all viewers.
// Viewers read earlier messages from history.
type Topic struct {
	// static
	hub  *Hub
	name string

	holders int // guarded by hub.mu

	mu      sync.Mutex
	tail    []*Entry // sorted by id
	from    string   // if covered, every message after this one is in the tail
	covered bool
	// version increases whenever history may contain more than a viewer last found there.
	version uint64
	clears  uint64    // number of times that the history was cleared
	cleared string    // the last message that a clear removed
	gone    EventKind // Deleted or Expired once the session is gone
	// summary is the newest summary, and summaries counts all of them.
	summary   *SummaryStats
	summaries uint64
	// parked are the viewers that have been shown everything. The writer wakes only these, so a viewer that is stuck in a
	// write costs it nothing.
	parked []*Viewer
	spare  []*Viewer // the buffer that wake swaps with parked
	trim   *time.Timer
}

// Name returns the name of the topic, which is the id of the session.
func (t *Topic) Name() string { return t.name }

// HasOneHolder reports whether the topic has exactly one holder. If the caller is that holder, nobody views the topic.
func (t *Topic) HasOneHolder() bool {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	return t.holders == 1
}

// Close removes one holder. When no holder is left, the hub removes the topic from memory.
func (t *Topic) Close() {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	t.holders--
	if t.holders > 0 {
		return
	}
	delete(t.hub.topics, t.name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trim != nil {
		t.trim.Stop()
	}
}

// Publish adds new messages, in ascending order of their ids. The first one must directly follow the message previous, or
// be the session's first if previous is "". Publish skips messages that were published before.
func (t *Topic) Publish(previous string, entries ...*Entry) {
	t.mu.Lock()
	if last := len(t.tail) - 1; last >= 0 {
		for len(entries) > 0 && entries[0].ID <= t.tail[last].ID {
			previous, entries = entries[0].ID, entries[1:]
		}
	}
	if last := len(t.tail) - 1; !t.covered || (last >= 0 && t.tail[last].ID < previous) || (last < 0 && t.from < previous) {
		// Messages are missing between the tail and the new ones: viewers read these from history.
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

// ScheduleTrim drops the tail from memory after tailRetention. Call it when the newest reply has ended.
func (t *Topic) ScheduleTrim() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trim == nil {
		t.trim = time.AfterFunc(tailRetention, t.dropTail)
		return
	}
	t.trim.Reset(tailRetention)
}

func (t *Topic) dropTail() {
	t.mu.Lock()
	if n := len(t.tail); n > 0 {
		if r := t.tail[n-1].Reply; r != nil {
			if _, ending := r.Snapshot(); ending == nil {
				t.mu.Unlock()
				return // a new turn has begun
			}
		}
		t.from, t.tail = t.tail[n-1].ID, nil
		t.version++
	}
	t.mu.Unlock()
}

func (t *Topic) clear(id string) {
	t.mu.Lock()
	if id <= t.cleared { // a repetition: both the store and the node that cleared it notify
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

func (t *Topic) notifySummarised(stats SummaryStats) {
	t.mu.Lock()
	t.summary = &stats
	t.summaries++
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

// wake wakes all parked viewers.
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

// park marks v as parked. mu must be held.
func (t *Topic) park(v *Viewer) {
	if v.slot == 0 {
		t.parked = append(t.parked, v)
		v.slot = len(t.parked)
	}
}

// unpark marks v as running. mu must be held.
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

// find returns the entry with that id in the tail, or nil. mu must be held.
func (t *Topic) find(id string) *Entry {
	i := sort.Search(len(t.tail), func(i int) bool { return t.tail[i].ID >= id })
	if i < len(t.tail) && t.tail[i].ID == id {
		return t.tail[i]
	}
	return nil
}

// following returns the first entry in the tail that a viewer at p has not completely seen, or nil. mu must be held.
func (t *Topic) following(p Position) *Entry {
	i := sort.Search(len(t.tail), func(i int) bool {
		return t.tail[i].ID > p.ID || t.tail[i].ID == p.ID && !p.Ended
	})
	if i < len(t.tail) {
		return t.tail[i]
	}
	return nil
}

// covers reports whether every message after p is in the tail. mu must be held.
func (t *Topic) covers(p Position) bool {
	return t.covered && (p.ID > t.from || p.ID == t.from && p.Ended)
}
