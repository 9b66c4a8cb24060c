package turn

import "sync"

// registry holds the live turns of this node, and counts the running calls of BeginTurn, which may add a turn.
type registry struct {
	mu        sync.Mutex
	turns     map[string]*Turn        // guarded by mu; by the reply's id
	sessions  map[string]int          // guarded by mu; number of live turns, by session
	beginning map[string]int          // guarded by mu; calls of BeginTurn that have not returned, by session
	begins    *sync.Cond              // uses mu; signals that beginning has decreased
	queued    map[string]*queuedSends // guarded by mu; queued sends that watch the endings of their session, by session
	stopped   error                   // guarded by mu; set by stopAll: add stops later turns with this cause
}

// queuedSends describes the queued sends of one session.
type queuedSends struct {
	late  chan struct{} // closed when an ending of the session is late
	count int
}

func newRegistry() *registry {
	r := &registry{
		turns: make(map[string]*Turn), sessions: make(map[string]int), beginning: make(map[string]int),
		queued: make(map[string]*queuedSends),
	}
	r.begins = sync.NewCond(&r.mu)
	return r
}

// begin records that a call of BeginTurn for the session is running. The caller must call done when it has added the
// turn, or when no turn has begun.
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

// watchEndings returns a channel that is closed when the store has failed to store an ending of the session in time. The
// caller must call done when it no longer reads the channel.
func (r *registry) watchEndings(sessionID string) (late <-chan struct{}, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sends := r.queued[sessionID]
	if sends == nil {
		sends = &queuedSends{late: make(chan struct{})}
		r.queued[sessionID] = sends
	}
	sends.count++
	return sends.late, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if sends.count--; sends.count == 0 && r.queued[sessionID] == sends {
			delete(r.queued, sessionID)
		}
	}
}

// endingIsLate wakes the queued sends of a session, because the store has not stored an ending in time.
func (r *registry) endingIsLate(sessionID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sends := r.queued[sessionID]; sends != nil {
		close(sends.late)
		delete(r.queued, sessionID)
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

// stopAll stops all turns, and every turn that is added later. It also starts the turns, because a turn that nobody
// starts would never end.
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

// isLive reports whether the session has a live turn. A drain calls it for each subscription of each socket, 20 times a
// second, so it must not go through all turns.
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

// await returns the turn of a reply that was live in the store a moment ago; nil if the reply has ended since, or
// belongs to another node. It waits while a turn of the session is beginning, because the store may have begun the turn
// before this node has the response.
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
