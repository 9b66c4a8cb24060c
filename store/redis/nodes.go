package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

var (
	heartbeatScript = newScript("heartbeat", counts|idempotent)
	buryScript      = newScript("bury", counts|idempotent)
)

const (
	// heartbeatEvery is how often a node says that it lives.
	heartbeatEvery = time.Second
	// deadAfter is when a node that has not said so is dead: its turns are ended by the others. For as long, a node
	// ends nobody's turns after its own connection came back: an outage has everybody look dead (design section 3).
	deadAfter = 3 * time.Second
	// reclaimEvery is how often a node looks whether the store has it write what it does not: a fail-over may go unnoticed.
	reclaimEvery = 2 * time.Second
)

// membership is this process as one of the nodes, and what it knows of the others.
type membership struct {
	every, deadAfter time.Duration // static; heartbeatEvery and deadAfter, but for tests that are in more of a hurry

	mu sync.Mutex
	// guarded by mu
	stop     context.CancelFunc     // nil while this process is no node
	poked    func(sessionID string) // not nil after Join
	began    time.Time              // when the first heartbeat came back
	heard    time.Time              // when the last one did
	ahead    time.Duration          // the store's clock, as of heard, less the time since began
	lost     bool                   // one has failed since heard
	reapFrom time.Time              // before that, nobody's turns are ended
	reclaim  time.Time              // when this node's own are to be looked at (Store.reclaim)
	present  []string               // all nodes, as of heard
	dead     []string               // those whose heartbeat was over deadAfter old, as of heard
	suspects map[orphan]time.Time   // since when (see suspect)
	mute     bool                   // a test has the heartbeat stop, as if the process slept

	work sync.WaitGroup // the heartbeat, the inbox, and who checks it
}

// Join implements conversation.Nodes. It returns once the node is heard and hears; where it fails, it can be called
// again.
func (s *Store) Join(ctx context.Context, poked func(sessionID string)) error {
	n := &s.membership
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.mu.Lock()
	if n.stop != nil {
		n.mu.Unlock()
		stop()
		return errors.New("redis: this process has joined the nodes already")
	}
	n.stop, n.poked = stop, poked
	n.mu.Unlock()

	in := &inbox{store: s, poked: poked, subscribed: make(chan struct{})}
	n.work.Go(func() { in.run(running) })
	err := in.await(ctx)
	if err == nil {
		err = s.beat(ctx)
	}
	if err != nil {
		s.halt()
		return err
	}
	n.work.Go(func() { s.beatOn(running) })
	n.work.Go(func() { in.checkOn(running) })
	return nil
}

// halt ends what Join has begun. It reports whether there was anything.
func (s *Store) halt() bool {
	n := &s.membership
	n.mu.Lock()
	stop := n.stop
	n.stop = nil
	n.mu.Unlock()
	if stop == nil {
		return false
	}
	stop()
	n.work.Wait()
	return true
}

// leave ends this process's life as a node. Where it has live turns still, the others find it dead in a while and end
// them; so they do where this cannot be said.
func (s *Store) leave() {
	if !s.halt() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_ = s.removeStale(ctx)
	if live, err := s.db.SCard(ctx, liveKey(s.node)).Result(); err == nil && live == 0 {
		_ = s.db.ZRem(ctx, nodesKey, s.node).Err()
	}
}

// beatOn says that the node lives, each second, until ctx is done.
func (s *Store) beatOn(ctx context.Context) {
	ticker := time.NewTicker(s.membership.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = s.beat(ctx)        // it is noted
		_ = s.removeStale(ctx) // the next time, then
		now := time.Now()
		s.viewers.sweep(now)
		s.journal.sweep(now)
	}
}

// beat says that the node lives, and learns which others do.
func (s *Store) beat(ctx context.Context) error {
	n := &s.membership
	n.mu.Lock()
	mute := n.mute
	n.mu.Unlock()
	if mute {
		return nil
	}
	reply, err := s.run(ctx, heartbeatScript, "", []string{nodesKey}, s.node, n.deadAfter.Milliseconds())
	if err == nil {
		var was bool
		if was, err = n.learn(reply, time.Now()); err == nil && !was {
			n.tell("") // others may have ended its turns
		}
	}
	if err != nil {
		n.mu.Lock()
		n.lost = true
		n.mu.Unlock()
	}
	return err
}

// learn notes what a heartbeat returned. It reports whether the node was among the nodes; its first heartbeat counts as
// that.
func (n *membership) learn(reply any, now time.Time) (was bool, err error) {
	parts, _ := reply.([]any)
	if len(parts) != 4 {
		return false, heartbeatScript.malformed()
	}
	clock, ok1 := parts[1].(int64)
	present, ok2 := texts(parts[2])
	dead, ok3 := texts(parts[3])
	if !ok1 || !ok2 || !ok3 {
		return false, heartbeatScript.malformed()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	first := n.heard.IsZero()
	if first {
		n.began = now
	}
	ahead := time.Duration(clock)*time.Millisecond - now.Sub(n.began)
	stepped := (ahead - n.ahead).Abs() > n.every // a clock that is set ahead has everybody look dead, too
	if first || n.lost || stepped || now.Sub(n.heard) > n.deadAfter {
		n.reapFrom = now.Add(n.deadAfter)
		n.reclaim = now
	}
	n.heard, n.ahead, n.lost, n.present, n.dead = now, ahead, false, present, dead
	return first || parts[0] == int64(1), nil
}

// joined reports whether this process is a node.
func (n *membership) joined() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stop != nil
}

// tell pokes this process.
func (n *membership) tell(sessionID string) {
	n.mu.Lock()
	poked := n.poked
	n.mu.Unlock()
	if poked != nil {
		poked(sessionID)
	}
}

// suspect notes that a session has a live turn of that node. Where it is none that is known, nobody but who looks at the session
// can find it: a process that died between the beginning of a turn and counting it among its own. Should the
// node not have appeared after deadAfter, EndOrphans ends the turn.
func (s *Store) suspect(owner conversation.Owner, sessionID, by string) {
	n := &s.membership
	if by == "" || by == s.node {
		return
	}
	o := orphan{node: by, owner: owner, session: sessionID}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, noted := n.suspects[o]; !noted && n.stop != nil && !slices.Contains(n.present, by) {
		if n.suspects == nil {
			n.suspects = make(map[orphan]time.Time)
		}
		n.suspects[o] = time.Now()
	}
}

// sure reports whether this node can be sure who is dead; called with mu held.
func (n *membership) sure(now time.Time) bool {
	return n.stop != nil && !n.lost && now.Sub(n.heard) <= 2*n.every && !now.Before(n.reapFrom)
}

// toReap returns the nodes that are dead, and the turns of nodes that are unknown; none while this node cannot be sure.
func (n *membership) toReap(now time.Time) (dead []string, unknown []orphan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.sure(now) {
		return nil, nil
	}
	for o, since := range n.suspects {
		switch {
		case slices.Contains(n.present, o.node):
			delete(n.suspects, o)
		case n.heard.Sub(since) > n.deadAfter:
			unknown = append(unknown, o)
		}
	}
	return slices.Clone(n.dead), unknown
}

// toReclaim reports whether this node's own turns are to be looked at: after an outage, which may have been a fail-over, and
// every reclaimEvery.
func (n *membership) toReclaim(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.lost && !now.Before(n.reclaim)
}

// reclaimed notes that it has been done.
func (n *membership) reclaimed(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reclaim = now.Add(reclaimEvery)
}

// texts returns a list of strings that a script returned.
func texts(reply any) ([]string, bool) {
	list, ok := reply.([]any)
	all := make([]string, len(list))
	for i, item := range list {
		text, isText := item.(string)
		all[i], ok = text, ok && isText
	}
	return all, ok
}

// clear forgets turns that were suspected.
func (n *membership) clear(orphans []orphan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range orphans {
		delete(n.suspects, o)
	}
}
