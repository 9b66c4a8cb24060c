package auth

import (
	"sync"
	"time"
)

const (
	// fresh is how long a look-up is believed. It says who calls; whether the key still works, the admission of each
	// request asks the store itself. So what can be this old is the account's tier, and what another process' rotation
	// says of the secret's deprecation.
	fresh = 5 * time.Second
	// maxCached bounds the keys that are remembered.
	maxCached = 10_000
)

// cache remembers who presents which secret. It only spares look-ups: nothing is true because it is in here for longer
// than fresh. Its methods may be called from any goroutine.
type cache struct {
	mu    sync.RWMutex
	seen  map[Hash]verified // guarded by mu
	epoch int               // guarded by mu; counts the calls of forget
}

// verified is a look-up that found somebody.
type verified struct {
	principal Principal
	end       time.Time // when the secret stops working; zero is never
	at        time.Time // when the look-up was begun
}

// get returns who presents a secret if that is known well enough, and otherwise the epoch in which it is looked up.
func (c *cache) get(hash Hash, now time.Time) (p Principal, ok bool, epoch int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.seen[hash]
	if !ok || now.Sub(v.at) >= fresh || !v.end.IsZero() && !now.Before(v.end) {
		return Principal{}, false, c.epoch
	}
	return v.principal, true, c.epoch
}

// put remembers a look-up that was begun in that epoch. What was read before a key changed is not remembered after it.
func (c *cache) put(hash Hash, v verified, epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return
	}
	if c.seen == nil {
		c.seen = make(map[Hash]verified)
	}
	for other := range c.seen { // some other one: it costs that key a look-up
		if len(c.seen) < maxCached {
			break
		}
		delete(c.seen, other)
	}
	c.seen[hash] = v
}

// drop forgets one secret.
func (c *cache) drop(hash Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, hash)
}

// forget forgets everything: some key has changed. That is rare, and a look-up is cheap.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.seen)
}
