package redis

import (
	"sync"
	"time"

	"parley/conversation"
)

// followAgain is how long after a node has told Redis that it follows a session it does so again. A lease lasts for
// conversation.FollowLease, so three renewals may fail before it lapses; and most polls write nothing.
const followAgain = 5 * time.Second

// followers knows who follows the sessions that this node writes in, and when this node last renewed its own leases.
type followers struct {
	mu      sync.Mutex
	renewed map[string]time.Time            // guarded by mu; by session, when this node last said that it follows it
	of      map[string]map[string]time.Time // guarded by mu; by session and other node, until when that node follows it
}

// due reports whether this node has to renew its lease of a session.
func (f *followers) due(sessionID string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.renewed[sessionID]
	return !ok || now.Sub(at) >= followAgain
}

// renew notes that this node has renewed its lease of a session.
func (f *followers) renew(sessionID string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed == nil {
		f.renewed = make(map[string]time.Time)
	}
	f.renewed[sessionID] = at
}

// add notes that another node follows a session.
func (f *followers) add(sessionID, node string, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = make(map[string]map[string]time.Time)
	}
	if f.of[sessionID] == nil {
		f.of[sessionID] = make(map[string]time.Time)
	}
	f.of[sessionID][node] = until
}

// appendWakeUps adds a session to the wake-ups, by node, of the nodes other than self that follow it.
func (f *followers) appendWakeUps(wakeUps map[string][]byte, sessionID, self string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for node, until := range f.of[sessionID] {
		if node == self || now.After(until) {
			continue
		}
		if len(wakeUps[node]) > 0 {
			wakeUps[node] = append(wakeUps[node], ' ')
		}
		wakeUps[node] = append(wakeUps[node], sessionID...)
	}
}

// sweep forgets leases that have lapsed.
func (f *followers) sweep(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sessionID, at := range f.renewed {
		if now.Sub(at) > conversation.FollowLease {
			delete(f.renewed, sessionID)
		}
	}
	for sessionID, nodes := range f.of {
		for node, until := range nodes {
			if now.After(until) {
				delete(nodes, node)
			}
		}
		if len(nodes) == 0 {
			delete(f.of, sessionID)
		}
	}
}
