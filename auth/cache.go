package auth

import (
	"sync"
	"time"
)

const (
	// fresh is how long a look-up is used again: one look-up in 5 s instead of one a request. A revoked key is still
	// refused at once, because each request is also admitted by the store. Only the account's tier, and the
	// deprecation of a secret that another process rotated, can be this old.
	fresh = 5 * time.Second
	// maxCached bounds the number of cached keys, and so the memory, to a few MB.
	maxCached = 10_000
)

// cache remembers who presents which secret. It only saves look-ups. Its methods may be called from any goroutine.
type cache struct {
	mu    sync.RWMutex
	seen  map[Hash]verified // guarded by mu
	epoch int               // guarded by mu; the number of calls of forget
}

// verified is the result of a successful look-up.
type verified struct {
	principal Principal
	end       time.Time // when the secret stops working; zero is never
	at        time.Time // when the look-up began
}

// get returns who presents the secret, if a fresh entry says so. Otherwise it returns the epoch to pass to put.
func (c *cache) get(hash Hash, now time.Time) (p Principal, ok bool, epoch int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.seen[hash]
	if !ok || now.Sub(v.at) >= fresh || !v.end.IsZero() && !now.Before(v.end) {
		return Principal{}, false, c.epoch
	}
	return v.principal, true, c.epoch
}

// put stores the result of a look-up that began in that epoch. If a key has changed since, the result may be
// outdated, and is not stored.
func (c *cache) put(hash Hash, v verified, epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return
	}
	if c.seen == nil {
		c.seen = make(map[Hash]verified)
	}
	for other := range c.seen { // evicts any entry: that key needs a look-up
		if len(c.seen) < maxCached {
			break
		}
		delete(c.seen, other)
	}
	c.seen[hash] = v
}

// drop removes one secret.
func (c *cache) drop(hash Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, hash)
}

// forget removes everything, because some key has changed. That is rare, and a look-up is cheap.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.seen)
}
