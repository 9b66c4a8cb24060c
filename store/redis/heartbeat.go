package redis

import (
	"context"
	"time"
)

var heartbeatScript = newScript("heartbeat", idempotent)

const (
	// heartbeatInterval is how often a node says that it is alive.
	heartbeatInterval = time.Second
	// deadAfter is after how long without a heartbeat a node is dead, and the others end its turns: three missed heartbeats, so
	// that one slow second kills nobody, and a turn is ended within 5 s. For as long, a node ends nobody's turns after its own
	// connection to Redis came back: after an outage everybody looks dead.
	deadAfter = 3 * time.Second
)

// beatLoop sends heartbeats until ctx is done.
func (s *Store) beatLoop(ctx context.Context) {
	ticker := time.NewTicker(s.membership.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = s.beat(ctx)        // membership.lost notes a failure
		_ = s.removeStale(ctx) // if it fails, the next tick tries again
		now := time.Now()
		s.followers.sweep(now)
		s.journal.sweep(now)
	}
}

// beat sends a heartbeat, and learns which nodes are alive.
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
			m.notifySelf("") // others may have ended this node's turns
		}
	}
	if err != nil {
		m.mu.Lock()
		m.lost = true
		m.mu.Unlock()
	}
	return err
}

// learn notes what a heartbeat returned. It reports whether the node was among the nodes; for its first heartbeat it reports
// true.
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
	stepped := (ahead - m.ahead).Abs() > m.interval // if the server's clock is set ahead, everybody looks dead
	if first || m.lost || stepped || now.Sub(m.heard) > m.deadAfter {
		m.endOrphansFrom = now.Add(m.deadAfter)
		m.reclaimAt = now
	}
	m.heard, m.ahead, m.lost, m.present, m.dead = now, ahead, false, present, dead
	return first || parts[0] == int64(1), nil
}
