package stream

import (
	"context"
	"sort"
	"sync"
	"time"
)

// History reads messages of a topic that are no longer in memory. EntriesFrom may be called from any goroutine.
type History interface {
	// EntriesFrom returns at most limit messages, in ascending order of their ids. The list begins with the message id if
	// inclusive is true, else with the message after id. The list contains no streaming reply: the topic has that reply
	// in memory, or will have it in a moment.
	EntriesFrom(ctx context.Context, topic, id string, inclusive bool, limit int) ([]*Entry, error)
}

const (
	// tailRetention is the time for which the tail stays in memory after the end of the newest reply. A reply of 200 tokens takes
	// 6 KiB. Our clients reconnect within 0.5 s, or 1.5 s if the first attempt fails. Later viewers read history.
	tailRetention = 2 * time.Second
	// maxTail is the maximum number of messages in the tail of a topic. Viewers that are further behind read history.
	maxTail = 8
)

// Hub holds the topics that have a holder on this node. The methods of a Hub may be called from any goroutine.
type Hub struct {
	mu     sync.Mutex
	topics map[string]*Topic // guarded by mu
}

// NewHub returns an empty hub.
func NewHub() *Hub { return &Hub{topics: make(map[string]*Topic)} }

// Open returns the topic with that name, and creates the topic if necessary. The caller becomes a holder of the topic,
// and must call [Topic.Close] once.
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

// lookup returns the topic with that name, or nil if the topic has no holder.
func (h *Hub) lookup(name string) *Topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[name]
}

// Reply returns the reply with that id, live or ended. It returns nil if the tail of the topic does not contain the reply.
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

// Clear shows the event Cleared to the viewers of a topic, and drops all messages with ids up to and including id from memory.
// Call Clear after the store has removed these messages. A second call with the same id has no effect.
func (h *Hub) Clear(topic, id string) {
	if t := h.lookup(topic); t != nil {
		t.clear(id)
	}
}

// NotifySummarised shows ContextSummarised to the viewers that are subscribed to a topic now.
func (h *Hub) NotifySummarised(topic string, stats SummaryStats) {
	if t := h.lookup(topic); t != nil {
		t.notifySummarised(stats)
	}
}

// Remove shows Deleted or Expired to the viewers of a topic, because the session is gone. how is one of these two kinds.
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

// Topic holds the newest messages of one session in memory, for all viewers. These messages are the tail of the topic.
// Viewers read earlier messages from history.
type Topic struct {
	// static
	hub  *Hub
	name string

	holders int // guarded by hub.mu

	mu   sync.Mutex
	tail []*Entry // sorted by id
	// covered means that the tail contains every message with an id greater than from.
	covered bool
	from    string
	version uint64    // increases whenever viewers may have to read history again
	clears  uint64    // number of times that the history was cleared
	cleared string    // the newest clear removed all messages with ids up to and including this id
	gone    EventKind // Deleted or Expired if the session is gone, else 0
	// summary is the newest summary, and summaries is the number of summaries so far.
	summary   *SummaryStats
	summaries uint64
	// parked are the viewers that have been shown everything. The writer wakes only parked viewers, so a viewer that is
	// stuck in a slow write costs the writer nothing.
	parked []*Viewer
	spare  []*Viewer   // the buffer that wake swaps with parked
	trim   *time.Timer // drops the tail after tailRetention; nil until the first ScheduleTrim
}

// Name returns the name of the topic, which is the id of the session.
func (t *Topic) Name() string { return t.name }

// HasOneHolder reports whether the topic has exactly one holder. If the caller is a holder and not a viewer, true means
// that the topic has no viewers.
func (t *Topic) HasOneHolder() bool {
	t.hub.mu.Lock()
	defer t.hub.mu.Unlock()
	return t.holders == 1
}

// Close removes one holder. The last Close removes the topic from the hub.
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

// Publish adds new messages to the topic and wakes the parked viewers. The ids of entries must ascend. previous is an id:
// the session must have no message between previous and the first entry. previous is "" if the first entry is the first
// message of the session. Publish skips entries that were published before.
func (t *Topic) Publish(previous string, entries ...*Entry) {
	t.mu.Lock()
	if last := len(t.tail) - 1; last >= 0 {
		for len(entries) > 0 && entries[0].ID <= t.tail[last].ID {
			previous, entries = entries[0].ID, entries[1:]
		}
	}
	if last := len(t.tail) - 1; !t.covered || (last >= 0 && t.tail[last].ID < previous) || (last < 0 && t.from < previous) {
		// The tail does not reach up to previous. Viewers read the missing messages from history.
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

// ScheduleTrim drops the tail from memory after tailRetention, unless Publish is called before. Call ScheduleTrim when the
// newest reply has ended.
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
			if _, ending := r.Size(); ending == nil {
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
	if id <= t.cleared { // the node that clears a session calls Clear twice: at once, and again when it polls the store
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

// park parks v. mu must be held.
func (t *Topic) park(v *Viewer) {
	if v.slot == 0 {
		t.parked = append(t.parked, v)
		v.slot = len(t.parked)
	}
}

// unpark removes v from parked, if v is parked. mu must be held.
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

// find returns the entry with that id, or nil if the tail does not contain it. mu must be held.
func (t *Topic) find(id string) *Entry {
	i := sort.Search(len(t.tail), func(i int) bool { return t.tail[i].ID >= id })
	if i < len(t.tail) && t.tail[i].ID == id {
		return t.tail[i]
	}
	return nil
}

// following returns the first entry in the tail that a viewer at position p has not seen completely. It returns nil if
// the viewer has seen all entries of the tail. mu must be held.
func (t *Topic) following(p Position) *Entry {
	i := sort.Search(len(t.tail), func(i int) bool {
		return t.tail[i].ID > p.ID || t.tail[i].ID == p.ID && !p.Ended
	})
	if i < len(t.tail) {
		return t.tail[i]
	}
	return nil
}

// covers reports whether the tail contains every message after position p. mu must be held.
func (t *Topic) covers(p Position) bool {
	return t.covered && (p.ID > t.from || p.ID == t.from && p.Ended)
}
