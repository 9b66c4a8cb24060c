package redis

import (
	"sync"
	"time"

	"parley/conversation"
)

// A node renews its lease of a session every followAgain. The lease lasts for conversation.FollowLease, 20 s, so it lapses only
// if three renewals in a row fail. A session with a live reply is polled every second, so most of its polls write nothing.
const followAgain = 5 * time.Second

// followers tracks which nodes follow the sessions in which this node writes. It also tracks when this node last renewed its own
// leases.
type followers struct {
	mu      sync.Mutex
	renewed map[string]time.Time            // guarded by mu; session id → time when this node last renewed its lease
	of      map[string]map[string]time.Time // guarded by mu; session id → id of a follower → time when its lease lapses
}

// due reports whether this node must renew its lease of a session.
func (f *followers) due(sessionID string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.renewed[sessionID]
	return !ok || now.Sub(at) >= followAgain
}

// renew records that this node has renewed its lease of a session.
func (f *followers) renew(sessionID string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed == nil {
		f.renewed = make(map[string]time.Time)
	}
	f.renewed[sessionID] = at
}

// add records that another node follows a session, and that its lease lapses at until.
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

// appendWakeUps adds a session to the wake-ups of each node that follows the session, except self. wakeUps maps a node to the ids
// of sessions, separated by spaces.
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

// sweep removes the entries of leases that have lapsed.
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
