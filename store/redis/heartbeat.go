package redis

import (
	"context"
	"time"
)

var heartbeatScript = newScript("heartbeat", idempotent)

const (
	// heartbeatInterval is the interval of a node's heartbeats.
	heartbeatInterval = time.Second
	// A node is dead after deadAfter without a heartbeat, and other nodes end its turns. deadAfter is three heartbeats: a node
	// that misses one heartbeat is not dead, and an orphan is ended within 5 s. After an outage of Redis, a node sees all other
	// nodes as dead. So it ends no turns of other nodes for another deadAfter.
	deadAfter = 3 * time.Second
)

// every calls do at each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, do func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do()
		}
	}
}

// beatAndSweep sends a heartbeat. Then it removes stale members from the set of live turns, and old entries from followers and
// journal.
func (s *Store) beatAndSweep(ctx context.Context) {
	_ = s.beat(ctx)        // a failed beat sets membership.lost
	_ = s.removeStale(ctx) // if the removal fails, reclaim repeats it
	now := time.Now()
	s.followers.sweep(now)
	s.journal.sweep(now)
}

// beat sends a heartbeat, and stores which nodes are dead.
func (s *Store) beat(ctx context.Context) error {
	m := &s.membership
	m.mu.Lock()
	asleep := m.asleep
	m.mu.Unlock()
	if asleep {
		return nil
	}
	reply, err := s.run(ctx, heartbeatScript, "", []string{nodesKey}, s.node, m.deadAfter.Milliseconds())
	if err == nil {
		var was bool
		if was, err = m.learn(reply, time.Now()); err == nil && !was {
			m.notifySelf("") // other nodes may have ended this node's turns
		}
	}
	if err != nil {
		m.mu.Lock()
		m.lost = true
		m.mu.Unlock()
	}
	return err
}

// learn stores the result of a heartbeat that arrived at now. It reports whether this node was still in the list of nodes before
// the heartbeat. For the first heartbeat, it returns true.
func (m *membership) learn(reply any, now time.Time) (was bool, err error) {
	parts := list(reply)
	if len(parts) != 4 {
		return false, heartbeatScript.malformed()
	}
	clock, ok1 := parts[1].(int64)
	present, ok2 := texts(parts[2])
	dead, ok3 := texts(parts[3])
	if !ok1 || !ok2 || !ok3 {
		return false, heartbeatScript.malformed()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.heard.IsZero()
	if first {
		m.began = now
	}
	ahead := time.Duration(clock)*time.Millisecond - now.Sub(m.began)
	stepped := (ahead - m.ahead).Abs() > m.interval // if the server's clock jumps ahead, other nodes look dead
	if first || m.lost || stepped || now.Sub(m.heard) > m.deadAfter {
		m.endOrphansFrom = now.Add(m.deadAfter)
		m.reclaimAt = now
	}
	m.heard, m.ahead, m.lost, m.present, m.dead = now, ahead, false, present, dead
	return first || parts[0] == int64(1), nil
}
