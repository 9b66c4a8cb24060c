package socket

import (
	"context"
	"errors"
	"sync"
	"time"

	"parley/auth"
)

// revocationInterval is the interval at which the keys of open connections are checked in the store. Connections must end
// within a second after their key was revoked on any node. Two checks fit into that second, so one may be slow.
const revocationInterval = 400 * time.Millisecond

// RevocationMonitor ends the connections and the waiting requests of a key that stops working: the key was revoked, the key has
// expired, or the grace period of a rotated-out secret is over. In this file, "connection" means both. The monitor checks each
// secret once per interval, also if many connections use the same secret. Its goroutine runs only while there are connections;
// the last release blocks until the goroutine has exited. Its methods may be called from any goroutine.
type RevocationMonitor struct {
	revalidate func(context.Context, auth.Principal) error // static

	mu      sync.Mutex
	watched map[watchedKey]map[*watchedConn]struct{} // guarded by mu
	checker *checker                                 // guarded by mu; nil while nothing is watched
}

// watchedKey identifies a secret. The admin key from the configuration has no hash, only an id.
type watchedKey struct {
	secret auth.Hash
	keyID  string
}

type watchedConn struct {
	principal auth.Principal
	end       func() // nil once it has been called
}

// checker is the monitor's goroutine.
type checker struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// NewRevocationMonitor returns a monitor. revalidate must return [auth.ErrInvalidToken] if a principal's key no longer works.
// Any other error means that the state of the key is unknown. The monitor then keeps the connections.
func NewRevocationMonitor(revalidate func(context.Context, auth.Principal) error) *RevocationMonitor {
	return &RevocationMonitor{revalidate: revalidate, watched: make(map[watchedKey]map[*watchedConn]struct{})}
}

// Watch calls end once if the principal's key stops working before the caller calls release. end must neither block nor call
// release.
func (m *RevocationMonitor) Watch(p auth.Principal, end func()) (release func()) {
	w, key := &watchedConn{p, end}, watchedKey{p.Secret, p.KeyID}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watched[key] == nil {
		m.watched[key] = make(map[*watchedConn]struct{})
	}
	m.watched[key][w] = struct{}{}
	if m.checker == nil {
		ctx, cancel := context.WithCancel(context.Background())
		m.checker = &checker{cancel, make(chan struct{})}
		go m.run(ctx, m.checker.done)
	}
	return func() { m.release(key, w) }
}

func (m *RevocationMonitor) release(key watchedKey, w *watchedConn) {
	m.mu.Lock()
	var last *checker
	delete(m.watched[key], w)
	if len(m.watched[key]) == 0 {
		delete(m.watched, key)
	}
	if len(m.watched) == 0 && m.checker != nil {
		last, m.checker = m.checker, nil
		last.cancel()
	}
	m.mu.Unlock()
	if last != nil {
		<-last.done
	}
}

// run checks all keys once per interval until ctx ends.
func (m *RevocationMonitor) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	tick := time.NewTicker(revocationInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range m.principals() {
			if errors.Is(m.check(ctx, p), auth.ErrInvalidToken) {
				m.end(watchedKey{p.Secret, p.KeyID})
			}
		}
	}
}

// check calls revalidate. If ctx ends first, check returns at once, so a store that does not respond does not delay the last
// release. The call then ends by the timeout of the store.
func (m *RevocationMonitor) check(ctx context.Context, p auth.Principal) error {
	result := make(chan error, 1)
	go func() { result <- m.revalidate(ctx, p) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// principals returns one principal of each watched key.
func (m *RevocationMonitor) principals() []auth.Principal {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]auth.Principal, 0, len(m.watched))
	for _, conns := range m.watched {
		for w := range conns {
			all = append(all, w.principal)
			break
		}
	}
	return all
}

// end ends the connections of a key. It holds mu during the calls, so that no connection is released while its end function
// runs.
func (m *RevocationMonitor) end(key watchedKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watched[key] {
		if w.end != nil {
			w.end()
			w.end = nil
		}
	}
}
