package turn

import "sync"

// registry holds the live turns of this node, and counts those that may be about to join them.
type registry struct {
	mu        sync.Mutex
	turns     map[string]*Turn // guarded by mu; by the reply's id
	sessions  map[string]int   // guarded by mu; turns, by session
	beginning map[string]int   // guarded by mu; calls of BeginTurn that have not returned, by session
	begins    *sync.Cond       // on mu; when beginning goes down
	stopped   error            // guarded by mu; stops the turns that join after stopAll
}

func newRegistry() *registry {
	r := &registry{turns: make(map[string]*Turn), sessions: make(map[string]int), beginning: make(map[string]int)}
	r.begins = sync.NewCond(&r.mu)
	return r
}

// begin says that a turn of the session may join; the caller calls done when it has, or will not.
func (r *registry) begin(sessionID string) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginning[sessionID]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.beginning[sessionID]--; r.beginning[sessionID] == 0 {
			delete(r.beginning, sessionID)
		}
		r.begins.Broadcast()
	}
}

func (r *registry) isBeginning(sessionID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.beginning[sessionID] > 0
}

func (r *registry) add(t *Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[t.begun.Key.ReplyID] = t
	r.sessions[t.begun.Key.SessionID]++
	if r.stopped != nil {
		t.Stop(r.stopped)
	}
}

// stopAll stops all turns, and those that join later. Turns whose senders never started them are started, so that they end.
func (r *registry) stopAll(cause error) {
	r.mu.Lock()
	r.stopped = cause
	r.mu.Unlock()
	for _, t := range r.all() {
		t.Stop(cause)
		t.start()
	}
}

func (r *registry) remove(t *Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.turns, t.begun.Key.ReplyID)
	session := t.begun.Key.SessionID
	if r.sessions[session]--; r.sessions[session] == 0 {
		delete(r.sessions, session)
	}
}

// isLive is called by a drain for each subscription of each socket, 20 times a second. So it must not look at each turn.
func (r *registry) isLive(sessionID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[sessionID] > 0
}

func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.turns)
}

func (r *registry) all() []*Turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Turn, 0, len(r.turns))
	for _, t := range r.turns {
		all = append(all, t)
	}
	return all
}

// await returns the turn of a reply that the store called live a moment ago; nil if it has ended since, or is another node's. It
// waits while a turn of the session is beginning, so that none is missed between the store and this node.
func (r *registry) await(sessionID, replyID string) *Turn {
	if replyID == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.turns[replyID] == nil && r.beginning[sessionID] > 0 {
		r.begins.Wait()
	}
	return r.turns[replyID]
}
