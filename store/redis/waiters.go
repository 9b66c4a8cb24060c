package redis

import (
	"sync"
	"time"

	"parley/conversation"
)

// waiterRetry is after how long a waiter tries again if it is not woken: that shows that it is alive (waiterTimeout), and makes
// up for a lost wake-up.
const waiterRetry = time.Second

// waiters are the sends of this process that wait in sessions' queues. Its methods may be called from any goroutine.
type waiters struct {
	mu     sync.Mutex
	places map[string]*place // guarded by mu; by place.word
}

// place is a waiter's place in a queue, or its attempt to get one. It is registered before the store is asked, so that a wake-up
// finds it from the moment on in which the waiter is in the queue.
type place struct {
	word    string // waiterWord, which wakes it
	granted chan struct{}
	timer   *time.Timer // guarded by waiters.mu; nil until await
}

// register adds a place; drop or await must follow. A place that the same waiter had before is granted.
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

// await returns a place as callers see it: granted when its waiter is woken, at the latest after waiterRetry.
func (w *waiters) await(p *place, live string) *conversation.Queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places[p.word] == p { // not woken yet
		p.timer = time.AfterFunc(waiterRetry, func() { w.drop(p) })
	}
	return &conversation.Queued{Granted: p.granted, Live: live}
}

// wake grants the place that a word of this node's inbox names. Other words are ignored.
func (w *waiters) wake(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.places[word]; p != nil {
		w.grantLocked(p)
	}
}

// drop grants a place unless it was granted before. Nobody has to wait for it.
func (w *waiters) drop(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grantLocked(p)
}

// grantLocked grants a place if it is still registered.
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
