package redis

import (
	"context"
	"sync"
	"time"

	"parley/conversation"
)

var leaveQueueScript = newScript("leave_queue", sessions|wakes|idempotent)

// LeaveQueue implements conversation.Store.
func (s *Store) LeaveQueue(ctx context.Context, owner conversation.Owner, sessionID, waiter string) error {
	tag := tagOfOwner(owner)
	_, err := s.run(ctx, leaveQueueScript, tag, []string{sessionKey(tag, sessionID)}, sessionID, waiter)
	s.turns.notBegun(liveMember(tag, sessionID, waiter))
	return err
}

// tryAgain is after how long a waiter tries again, told or not: that shows that it is there (lua/queue.lua), and makes up
// for a message that was lost.
const tryAgain = time.Second

// waiters are those of this process who wait for sessions. Its methods may be called from any goroutine.
type waiters struct {
	mu     sync.Mutex
	places map[string]*place // guarded by mu; by place.word
}

// place is a place in a queue, or the attempt to take one: taken before the store is asked, so that it can be told from the
// moment on in which it has its place there.
type place struct {
	word    string // "<session>!<waiter>", by which it is told (lua/queue.lua)
	granted chan struct{}
	timer   *time.Timer // guarded by waiters.mu; nil before it waits
}

// take takes a place; drop or await must follow. One that the same waiter had before is granted.
func (w *waiters) take(sessionID, waiter string) *place {
	p := &place{word: sessionID + "!" + waiter, granted: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.places[p.word]; before != nil {
		w.grant(before)
	}
	if w.places == nil {
		w.places = make(map[string]*place)
	}
	w.places[p.word] = p
	return p
}

// drop grants a place, if that was not done before. Nobody need wait for it.
func (w *waiters) drop(p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grant(p)
}

// grant grants a place, if it is there; called with mu held.
func (w *waiters) grant(p *place) {
	if w.places[p.word] != p {
		return
	}
	delete(w.places, p.word)
	close(p.granted)
	if p.timer != nil {
		p.timer.Stop()
	}
}

// await returns a place as callers see it: it is granted when its waiter is told, after tryAgain at the latest.
func (w *waiters) await(p *place, live string) *conversation.Queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places[p.word] == p { // it was not told yet
		p.timer = time.AfterFunc(tryAgain, func() { w.drop(p) })
	}
	return &conversation.Queued{Granted: p.granted, Live: live}
}

// poke does what a word of this node's inbox says to those who wait: if it names a waiter, that one is to try again. All other
// words are passed over.
func (s *Store) poke(word string) {
	s.waiters.mu.Lock()
	defer s.waiters.mu.Unlock()
	if p := s.waiters.places[word]; p != nil {
		s.waiters.grant(p)
	}
}
