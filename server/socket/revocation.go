package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"parley/auth"
)

// aliveEvery is how often the keys of open connections are looked at. With the age that a look-up in auth may have, a
// connection ends within a second of its key, wherever that was revoked (design section 2, revocation).
const aliveEvery = 400 * time.Millisecond

// watchman ends the connections of keys that no longer work: revoked, expired, or the secret rotated out for long enough.
// It looks at each secret once, however many connections it has. Its goroutine runs while there is a connection, and
// whoever lets the last one go waits for it. Its methods may be called from any goroutine.
type watchman struct {
	alive func(context.Context, auth.Principal) error // static

	mu      sync.Mutex
	watched map[watchedKey]map[*guarded]struct{} // guarded by mu
	round   *round                               // guarded by mu; the goroutine, while anything is watched
}

// watchedKey is what tells secrets apart. The declared key has no hash, but an id.
type watchedKey struct {
	secret auth.Hash
	keyID  string
}

type guarded struct {
	principal auth.Principal
	end       func()
}

type round struct {
	cancel context.CancelFunc
	over   chan struct{}
}

// watch has end called if the principal's key stops working before release is called. end must not wait, nor call
// release.
func (m *watchman) watch(p auth.Principal, end func()) (release func()) {
	w, key := &guarded{p, end}, watchedKey{p.Secret, p.KeyID}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watched == nil {
		m.watched = make(map[watchedKey]map[*guarded]struct{})
	}
	if m.watched[key] == nil {
		m.watched[key] = make(map[*guarded]struct{})
	}
	m.watched[key][w] = struct{}{}
	if m.round == nil {
		ctx, cancel := context.WithCancel(context.Background())
		m.round = &round{cancel, make(chan struct{})}
		go m.walk(ctx, m.round.over)
	}
	return func() { m.release(key, w) }
}

func (m *watchman) release(key watchedKey, w *guarded) {
	m.mu.Lock()
	var last *round
	delete(m.watched[key], w)
	if len(m.watched[key]) == 0 {
		delete(m.watched, key)
	}
	if len(m.watched) == 0 && m.round != nil {
		last, m.round = m.round, nil
		last.cancel()
	}
	m.mu.Unlock()
	if last != nil {
		<-last.over
	}
}

// walk looks at all keys again and again until ctx ends.
func (m *watchman) walk(ctx context.Context, over chan<- struct{}) {
	defer close(over)
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range m.principals() {
			// Where the store cannot say, nobody is sent away.
			if errors.Is(m.alive(ctx, p), auth.ErrInvalidToken) {
				m.end(watchedKey{p.Secret, p.KeyID})
			}
		}
	}
}

// principals returns one principal of each key that is watched.
func (m *watchman) principals() []auth.Principal {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]auth.Principal, 0, len(m.watched))
	for _, watches := range m.watched {
		for w := range watches {
			all = append(all, w.principal)
			break
		}
	}
	return all
}

// end ends the connections of a key. Their calls of release are still to come; what is not released yet is not gone yet,
// so end may rely on it.
func (m *watchman) end(key watchedKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watched[key] {
		if w.end != nil {
			w.end()
			w.end = nil // once
		}
	}
}
