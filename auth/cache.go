package auth

import (
	"sync"
	"time"
)

const (
	// fresh is the time for which a look-up is reused: one look-up in 5 s instead of one a request. A revoked key is
	// still refused at once, because the store also admits each request. Only the account's tier, and the deprecation of
	// a secret that another process rotated, can be this old.
	fresh = 5 * time.Second
	// maxCached is the maximum number of cached secrets. It bounds the memory to a few MB.
	maxCached = 10_000
)

// cache maps the hash of a secret to its principal, to save look-ups. Its methods may be called from any goroutine.
type cache struct {
	mu    sync.RWMutex
	seen  map[Hash]verified // guarded by mu
	epoch int               // guarded by mu; the number of calls of forget
}

// verified is the result of a successful look-up.
type verified struct {
	principal Principal
	end       time.Time // when the secret stops working; zero means never
	at        time.Time // when the look-up began
}

// get returns the principal of a secret if there is a fresh entry. Otherwise it returns the epoch, which the caller
// passes to put.
func (c *cache) get(hash Hash, now time.Time) (p Principal, ok bool, epoch int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.seen[hash]
	if !ok || now.Sub(v.at) >= fresh || !v.end.IsZero() && !now.Before(v.end) {
		return Principal{}, false, c.epoch
	}
	return v.principal, true, c.epoch
}

// put stores the result of a look-up that began in that epoch. If this process has changed a key since then, the result
// may be outdated, and put does not store it.
func (c *cache) put(hash Hash, v verified, epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return
	}
	if c.seen == nil {
		c.seen = make(map[Hash]verified)
	}
	for other := range c.seen { // evicts an arbitrary entry: its key will need a look-up
		if len(c.seen) < maxCached {
			break
		}
		delete(c.seen, other)
	}
	c.seen[hash] = v
}

// drop removes the entry of one secret.
func (c *cache) drop(hash Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, hash)
}

// forget removes all entries, because a key has changed. That is rare, and a look-up is cheap.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.seen)
}
