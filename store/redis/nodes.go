package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

// At each reclaimInterval, a node looks for turns that are live in the store, but have ended in the node (Store.reclaim). A
// fail-over that the node did not notice may have lost their endings.
const reclaimInterval = 2 * time.Second

// membership holds the state of this process as a node, and what its last heartbeat found out about the other nodes.
type membership struct {
	interval, deadAfter time.Duration // static; the constants heartbeatInterval and deadAfter

	mu sync.Mutex
	// guarded by mu
	stop           context.CancelFunc     // nil while this process is not a node
	notify         func(sessionID string) // nil before Join
	began          time.Time              // when the first heartbeat succeeded
	heard          time.Time              // when the last heartbeat succeeded
	ahead          time.Duration          // the server's Unix time at began, computed at heard; it changes if that clock jumps
	lost           bool                   // a heartbeat has failed since heard
	endOrphansFrom time.Time              // before this time, this node ends no turns of other nodes
	reclaimAt      time.Time              // time of the next Store.reclaim
	present        []string               // all nodes at heard, dead nodes included
	dead           []string               // nodes with no heartbeat for deadAfter before heard
	suspects       map[orphan]time.Time   // turns that suspect recorded, with the time of the first record
	asleep         bool                   // set by tests: sends no heartbeat, as if the process were suspended

	work sync.WaitGroup // the goroutines that send heartbeats, read the inbox, check its connection, and renew counts of sockets
}

// Join implements conversation.Nodes. When Join returns nil, other nodes can find this node and notify it. If Join fails, it can
// be called again.
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
	m.work.Go(func() { every(running, m.interval, func() { s.beatAndSweep(running) }) })
	m.work.Go(func() { every(running, heartbeatInterval, func() { in.check(running) }) })
	m.work.Go(func() { every(running, renewEvery, s.renew) })
	return nil
}

// stopMembership stops the goroutines that Join started, and waits for their end. It reports whether this process was a node.
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

// leave removes this process from the list of nodes. If the process has live turns or cannot reach Redis, it stays listed. The
// other nodes will find it dead and end its turns.
func (s *Store) leave() {
	if !s.stopMembership() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
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

// notifySelf calls the function that was passed to Join, like a wake-up in this node's inbox.
func (m *membership) notifySelf(sessionID string) {
	m.mu.Lock()
	notify := m.notify
	m.mu.Unlock()
	if notify != nil {
		notify(sessionID)
	}
}

// suspect records the live turn of a session if the turn's node is not in the list of nodes. Such a node began the turn, but died
// before its first heartbeat, or before the turn was in the node's set of live turns. Only readers of the session can find this
// turn. If the node does not appear in the list within deadAfter, EndOrphans ends the turn.
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

// clear removes turns from the suspects.
func (m *membership) clear(orphans []orphan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range orphans {
		delete(m.suspects, o)
	}
}

// sureLocked reports whether this node can tell which nodes are dead. A node cannot tell after a failed or
// late heartbeat, or before endOrphansFrom.
func (m *membership) sureLocked(now time.Time) bool {
	return m.stop != nil && !m.lost && now.Sub(m.heard) <= 2*m.interval && !now.Before(m.endOrphansFrom)
}

// orphaned returns the dead nodes, and the turns that have been suspects for longer than deadAfter. While this node cannot tell
// which nodes are dead, orphaned returns nothing.
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

// reclaimDue reports whether reclaim is due: at every reclaimInterval, and after an outage, which may have been a fail-over.
func (m *membership) reclaimDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.lost && !now.Before(m.reclaimAt)
}

// reclaimed schedules the next reclaim.
func (m *membership) reclaimed(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reclaimAt = now.Add(reclaimInterval)
}
