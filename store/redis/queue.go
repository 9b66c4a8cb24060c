package redis

import (
	"context"
	"sync"
	"time"

	"parley/conversation"
)

var leaveQueueScript = newScript("leave_queue", sessions|idempotent)

// LeaveQueue implements conversation.Store.
func (s *Store) LeaveQueue(ctx context.Context, owner conversation.Owner, sessionID, waiter string) error {
	tag := tagOfOwner(owner)
	_, err := s.run(ctx, leaveQueueScript, tag, []string{sessionKey(tag, sessionID)}, sessionID, waiter)
	s.turns.notBegun(liveMember(tag, sessionID, waiter))
	if err == nil {
		s.poke(sessionID)
	}
	return err
}

// tryAgain is after how long a waiter tries again, told or not: that shows that it is there (lua/queue.lua), and makes up
// for a message that was lost.
const tryAgain = time.Second

// waiters are those of this process who wait for sessions. Its methods may be called from any goroutine.
type waiters struct {
	mu  sync.Mutex
	all map[string]map[*place]struct{} // guarded by mu; by the session's id
}

// place is a place in a queue, or the attempt to take one: taken before the store is asked, so that no poke is missed.
type place struct {
	granted chan struct{}
	timer   *time.Timer // nil before it waits
	once    sync.Once
}

func (p *place) grant() { p.once.Do(func() { close(p.granted) }) }

// take takes a place that pokes reach; drop or await must follow.
func (w *waiters) take(sessionID string) *place {
	p := &place{granted: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[string]map[*place]struct{})
	}
	if w.all[sessionID] == nil {
		w.all[sessionID] = make(map[*place]struct{})
	}
	w.all[sessionID][p] = struct{}{}
	return p
}

// drop gives up a place.
func (w *waiters) drop(sessionID string, p *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all[sessionID], p)
	if len(w.all[sessionID]) == 0 {
		delete(w.all, sessionID)
	}
}

// await returns a place as callers see it: it is granted when the session is poked, after tryAgain at the latest.
func (w *waiters) await(sessionID string, p *place, live string) *conversation.Queued {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.all[sessionID][p]; waits { // no poke was first
		p.timer = time.AfterFunc(tryAgain, func() {
			w.drop(sessionID, p)
			p.grant()
		})
	}
	return &conversation.Queued{Granted: p.granted, Live: live}
}

// poke grants all places of a session.
func (w *waiters) poke(sessionID string) {
	w.mu.Lock()
	places := w.all[sessionID]
	delete(w.all, sessionID)
	w.mu.Unlock()
	for p := range places {
		if p.timer != nil {
			p.timer.Stop()
		}
		p.grant()
	}
}

// poke has those of this process who wait for a session try again. The inbox calls it too, so that the other nodes' do.
func (s *Store) poke(sessionID string) { s.waiters.poke(sessionID) }
