package redis

import (
	"context"
	"sync"
	"time"

	"parley/auth"
)

const (
	// renewEvery is the interval at which a node looks for counts that it must send again.
	renewEvery = time.Second
	// socketsAtOnce is the maximum number of counts in one round trip. Redis takes about 5 ms for 500 of them.
	socketsAtOnce = 500
)

// sockets counts the open sockets of each owner on this node. The node sends a count to Redis (lua/lib/sockets.lua) when a
// socket opens or closes, and again when the time renewal has passed. It sends the count and not the difference. So after a
// lost reply, an outage, or a lapsed lease, the next script corrects the stored count. A renewal costs one script for each
// owner, no matter how many sockets the owner has.
type sockets struct {
	lease, renewal time.Duration // static; the constants SocketLease and SocketRenewal of package auth

	mu      sync.Mutex
	change  int64                       // guarded by mu; number of the newest change of any count
	of      map[auth.Owner]*socketCount // guarded by mu
	due     map[auth.Owner]struct{}     // guarded by mu; owners whose counts this node must send
	sending bool                        // guarded by mu; a goroutine runs sendSockets
}

// socketCount is the count of one owner.
type socketCount struct {
	count   int64
	renewed time.Time // the time at which this node last sent the count
}

// countOf is an owner's count after a change.
type countOf struct {
	owner         auth.Owner
	count, change int64
}

// add counts a socket that is about to open. The caller sends the count.
func (o *sockets) add(owner auth.Owner) countOf {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of, o.due = make(map[auth.Owner]*socketCount), make(map[auth.Owner]struct{})
	}
	c := o.of[owner]
	if c == nil {
		c = new(socketCount)
		o.of[owner] = c
	}
	return o.changedLocked(owner, c, 1)
}

// changedLocked adds n to a count that the caller will send, and numbers the change.
func (o *sockets) changedLocked(owner auth.Owner, c *socketCount, n int64) countOf {
	c.count += n
	c.renewed = time.Now()
	o.change++
	return countOf{owner, c.count, o.change}
}

// remove subtracts a socket from the count, which is then due.
func (o *sockets) remove(owner auth.Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[owner].count--
	o.due[owner] = struct{}{}
}

// renew makes each count due that was last sent at least the time o.renewal before now.
func (o *sockets) renew(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for owner, c := range o.of {
		if now.Sub(c.renewed) >= o.renewal {
			o.due[owner] = struct{}{}
		}
	}
}

// take returns up to socketsAtOnce counts that are due. It forgets an owner without sockets. If the count 0 does not reach
// Redis, the lease of the older count lapses. If no count is due, the caller must stop sending.
func (o *sockets) take() (due []countOf) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for owner := range o.due {
		if len(due) == socketsAtOnce {
			break
		}
		delete(o.due, owner)
		c := o.of[owner]
		due = append(due, o.changedLocked(owner, c, 0))
		if c.count == 0 {
			delete(o.of, owner)
		}
	}
	o.sending = len(due) > 0
	return due
}

// begin reports whether the caller must send. If another goroutine is sending, that goroutine sends the counts of this caller
// too.
func (o *sockets) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sending {
		return false
	}
	o.sending = true
	return true
}

// sendSockets sends all counts that are due. If Redis does not get a count, the next renewal sends it again.
func (s *Store) sendSockets() {
	if !s.sockets.begin() {
		return
	}
	for due := s.sockets.take(); len(due) > 0; due = s.sockets.take() {
		_ = s.setSockets(context.Background(), due)
	}
}

// renew renews the leases of this node's sockets.
func (s *Store) renew() {
	s.sockets.renew(time.Now())
	s.sendSockets()
}
