package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

// reclaimInterval is how often a node looks whether the store has live turns of it that it does not write, which a fail-over that
// it did not notice may have brought back.
const reclaimInterval = 2 * time.Second

// membership is this process as one of the nodes, and what it knows of the others.
type membership struct {
	interval, deadAfter time.Duration // static; heartbeatInterval and deadAfter, shorter in tests

	mu sync.Mutex
	// guarded by mu
	stop           context.CancelFunc     // nil while this process is not a node
	notify         func(sessionID string) // not nil after Join
	began          time.Time              // when the first heartbeat returned
	heard          time.Time              // when the last one did
	ahead          time.Duration          // the server's clock at heard, less the time since began
	lost           bool                   // a heartbeat has failed since heard
	endOrphansFrom time.Time              // before this, nobody's turns are ended
	reclaimAt      time.Time              // when this node's own turns are to be compared with the store's (Store.reclaim)
	present        []string               // all nodes at heard
	dead           []string               // those whose heartbeat was older than deadAfter at heard
	suspects       map[orphan]time.Time   // since when (see suspect)
	asleep         bool                   // a test suppresses the heartbeat, as if the process were stopped

	work sync.WaitGroup // the heartbeat, the inbox, and its check
}

// Join implements conversation.Nodes. It returns once the other nodes can see and notify this one. If it fails, it can be called
// again.
func (s *Store) Join(ctx context.Context, notify func(sessionID string)) error {
	m := &s.membership
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.mu.Lock()
	if m.stop != nil {
		m.mu.Unlock()
		stop()
		return errors.New("redis: this process has already joined the nodes")
	}
	m.stop, m.notify = stop, notify
	m.mu.Unlock()

	in := &inbox{store: s, notify: notify, subscribed: make(chan struct{})}
	m.work.Go(func() { in.run(running) })
	err := in.await(ctx)
	if err == nil {
		err = s.beat(ctx)
	}
	if err != nil {
		s.stopMembership()
		return err
	}
	m.work.Go(func() { s.beatLoop(running) })
	m.work.Go(func() { in.checkLoop(running) })
	return nil
}

// stopMembership stops what Join started. It reports whether this process was a node.
func (s *Store) stopMembership() bool {
	m := &s.membership
	m.mu.Lock()
	stop := m.stop
	m.stop = nil
	m.mu.Unlock()
	if stop == nil {
		return false
	}
	stop()
	m.work.Wait()
	return true
}

// leave removes this process from the nodes. If it has live turns, or cannot reach Redis, it stays among them: the others will
// find it dead and end its turns.
func (s *Store) leave() {
	if !s.stopMembership() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_ = s.removeStale(ctx)
	if live, err := s.db.SCard(ctx, liveKey(s.node)).Result(); err == nil && live == 0 {
		_ = s.db.ZRem(ctx, nodesKey, s.node).Err()
	}
}

// joined reports whether this process is a node.
func (m *membership) joined() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop != nil
}

// notifySelf notifies this process, as if by its inbox.
func (m *membership) notifySelf(sessionID string) {
	m.mu.Lock()
	notify := m.notify
	m.mu.Unlock()
	if notify != nil {
		notify(sessionID)
	}
}

// suspect notes that a session has a live turn of a node. If that node is not among the nodes, its turn can only be found by
// whoever looks at the session: the process died after it began the turn and before its first heartbeat, or before it was among
// its live turns. If the node has not appeared after deadAfter, EndOrphans ends the turn.
func (s *Store) suspect(owner conversation.Owner, sessionID, node string) {
	m := &s.membership
	if node == "" || node == s.node {
		return
	}
	o := orphan{node: node, owner: owner, session: sessionID}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, noted := m.suspects[o]; !noted && m.stop != nil && !slices.Contains(m.present, node) {
		if m.suspects == nil {
			m.suspects = make(map[orphan]time.Time)
		}
		m.suspects[o] = time.Now()
	}
}

// clear forgets suspected turns.
func (m *membership) clear(orphans []orphan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range orphans {
		delete(m.suspects, o)
	}
}

// sureLocked reports whether this node can tell which nodes are dead.
func (m *membership) sureLocked(now time.Time) bool {
	return m.stop != nil && !m.lost && now.Sub(m.heard) <= 2*m.interval && !now.Before(m.endOrphansFrom)
}

// orphaned returns the dead nodes, and the turns of unknown nodes; none while this node cannot be sure.
func (m *membership) orphaned(now time.Time) (dead []string, unknown []orphan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.sureLocked(now) {
		return nil, nil
	}
	for o, since := range m.suspects {
		switch {
		case slices.Contains(m.present, o.node):
			delete(m.suspects, o)
		case m.heard.Sub(since) > m.deadAfter:
			unknown = append(unknown, o)
		}
	}
	return slices.Clone(m.dead), unknown
}

// reclaimDue reports whether this node's own turns are to be compared with the store's: after an outage, which may have been a
// fail-over, and every reclaimInterval.
func (m *membership) reclaimDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.lost && !now.Before(m.reclaimAt)
}

// reclaimed notes that they were compared.
func (m *membership) reclaimed(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reclaimAt = now.Add(reclaimInterval)
}
