package main

import (
	"sync"
	"time"

	"parley/cmd/chaos/history"
)

// record collects the history of a try. Its methods may be called from any goroutine.
type record struct {
	mu sync.Mutex
	h  history.History // guarded by mu; without Stored and Model
	// ends has the time at which a client first got the end of the reply to a message. Guarded by mu.
	ends map[string]time.Time
	// successes has the times of the successful writes of the prober. Guarded by mu.
	successes []time.Time
	sessions  []string // guarded by mu; the sessions that clients created
}

func newRecord() *record { return &record{ends: map[string]time.Time{}} }

func (r *record) change(f func(h *history.History)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.h)
}

func (r *record) crash(output string) {
	r.change(func(h *history.History) { h.Crashes = append(h.Crashes, output) })
}

func (r *record) request(q history.Request) {
	r.change(func(h *history.History) { h.Requests = append(h.Requests, q) })
}

func (r *record) send(s history.Send) {
	r.change(func(h *history.History) { h.Sends = append(h.Sends, s) })
}

func (r *record) view(v history.View) {
	r.change(func(h *history.History) { h.Views = append(h.Views, v) })
}

func (r *record) read(v history.Read) {
	r.change(func(h *history.History) { h.Reads = append(h.Reads, v) })
}

func (r *record) removed(session string) {
	r.change(func(h *history.History) {
		h.Removals = append(h.Removals, history.Removal{Session: session, At: time.Now()})
	})
}

// session adds a session. At the end, the try reads the history of each such session.
func (r *record) session(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = append(r.sessions, id)
}

// end records that a client got the end of the reply to a message. Only clients that retry at once call it: the Go client waits
// for up to 15 s before it reconnects, which would hide when the server was ready.
func (r *record) end(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ends[message]; !ok {
		r.ends[message] = time.Now()
	}
}

func (r *record) success() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.successes = append(r.successes, time.Now())
}

// outage returns the longest time between two successful writes of the prober, or from the last one until the end of the load.
func (r *record) outage(end time.Time) (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, at := range r.successes {
		next := end
		if i+1 < len(r.successes) {
			next = r.successes[i+1]
		}
		longest = max(longest, next.Sub(at))
	}
	return longest
}

// ending returns the longest time from the end of a model's response until a client got the end of the reply.
func (r *record) ending(m *model) (longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for message, at := range r.ends {
		if ended := m.endedAt(message); !ended.IsZero() {
			longest = max(longest, at.Sub(ended))
		}
	}
	return longest
}
