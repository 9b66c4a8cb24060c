package redis

import (
	"sync"
	"time"

	"parley/conversation"
)

// A waiter that is not woken tries again after waiterRetry. The retry shows that the waiter is alive (waiterTimeout), and
// replaces a lost wake-up.
const waiterRetry = time.Second

// waiters holds this process's waiters in the queues of sessions. Methods may be called from any goroutine.
type waiters struct {
	mu     sync.Mutex
	places map[string]*place // guarded by mu; the registered places, by place.word
}

// place is a waiter's place in a queue, or its attempt to get a place. It is registered before the script runs, because a wake-up
// may arrive before the script's result.
type place struct {
	word    string        // the waiterWord that wakes the waiter
	granted chan struct{} // closed when the waiter must try again
	timer   *time.Timer   // guarded by waiters.mu; nil until await
}

// register adds a place. The caller must then call drop or await. If the waiter has an earlier place, register
// removes that place and closes its granted.
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

// await returns the result for a waiter in a queue. Granted is closed when the waiter is woken, or after waiterRetry. The
// parameter live is the id of the live reply, or "".
func (w *waiters) await(p *place, live string) *conversation.Queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places[p.word] == p { // not woken yet
		p.timer = time.AfterFunc(waiterRetry, func() { w.drop(p) })
	}
	return &conversation.Queued{Granted: p.granted, Live: live}
}

// wake wakes a waiter of this process: it closes granted of the waiter's place. word is a waiterWord. wake ignores a waiter that
// has no place in waiters.
func (w *waiters) wake(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.places[word]; p != nil {
		w.grantLocked(p)
	}
}

// drop removes a place, and closes granted. It ignores a place that was removed before.
func (w *waiters) drop(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grantLocked(p)
}

// grantLocked removes a place, and closes granted. It ignores a place that is no longer registered.
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
