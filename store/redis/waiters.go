package redis

import (
	"sync"
	"time"

	"parley/conversation"
)

// A waiter that is not woken tries again after waiterRetry. The retry shows that the waiter is alive (waiterTimeout), and makes
// up for a lost wake-up.
const waiterRetry = time.Second

// waiters holds the waiters of this process in the queues of sessions. Its methods may be called from any goroutine.
type waiters struct {
	mu     sync.Mutex
	places map[string]*place // guarded by mu; keyed by place.word
}

// place is a waiter's place in a queue, or its attempt to get one. It is registered before the script runs, so that a wake-up
// finds it as soon as the waiter is in the queue.
type place struct {
	word    string // the waiterWord that wakes the waiter
	granted chan struct{}
	timer   *time.Timer // guarded by waiters.mu; nil until await
}

// register adds a place; the caller must call drop or await. It closes granted of an earlier place of the same waiter.
func (w *waiters) register(sessionID, waiter string) *place {
	p := &place{word: waiterWord(sessionID, waiter), granted: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.places[p.word]; before != nil {
		w.grantLocked(before)
	}
	if w.places == nil {
		w.places = make(map[string]*place)
	}
	w.places[p.word] = p
	return p
}

// await returns the caller's view of a place. Its Granted is closed when the waiter is woken, at the latest after waiterRetry.
// live is the id of the live reply, or "".
func (w *waiters) await(p *place, live string) *conversation.Queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places[p.word] == p { // not woken yet
		p.timer = time.AfterFunc(waiterRetry, func() { w.drop(p) })
	}
	return &conversation.Queued{Granted: p.granted, Live: live}
}

// wake closes granted of the place that a word of this node's inbox names. It ignores other words.
func (w *waiters) wake(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.places[word]; p != nil {
		w.grantLocked(p)
	}
}

// drop removes a place, and closes its granted, unless that has happened before.
func (w *waiters) drop(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grantLocked(p)
}

// grantLocked removes a place, and closes its granted, if it is still registered.
func (w *waiters) grantLocked(p *place) {
	if w.places[p.word] != p {
		return
	}
	delete(w.places, p.word)
	close(p.granted)
	if p.timer != nil {
		p.timer.Stop()
	}
}
