package auth

import (
	"sync"
	"time"
)

const (
	// fresh is the time for which the result of a look-up is valid. So a secret needs one look-up in 5 s instead of one per
	// request. A revoked key is still refused at once, because the store also admits each request. Only two things can be
	// 5 s old: the tier of the account, and the deprecation of a secret that another process has rotated.
	fresh = 5 * time.Second
	// maxCached is the maximum number of cached secrets. It limits the memory of the cache to a few MB.
	maxCached = 10_000
)

// cache maps the hash of a secret to its principal, to save look-ups. The methods of a cache may be called from any
// goroutine.
type cache struct {
	mu    sync.RWMutex
	seen  map[Hash]verified // guarded by mu
	epoch int               // the number of calls of forget; guarded by mu
}

// verified is the result of a successful look-up.
type verified struct {
	principal Principal
	end       time.Time // the time at which the secret stops working; zero means never
	at        time.Time // the time at which the look-up began
}

// get returns the principal of a secret if the cache has a fresh entry. Otherwise, the caller must make a look-up, and must
// pass epoch to put.
func (c *cache) get(hash Hash, now time.Time) (p Principal, ok bool, epoch int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.seen[hash]
	if !ok || now.Sub(v.at) >= fresh || !v.end.IsZero() && !now.Before(v.end) {
		return Principal{}, false, c.epoch
	}
	return v.principal, true, c.epoch
}

// put stores the result of a look-up. epoch is the result of cache.get before the look-up. If this process has called
// forget since then, the result may be outdated, so put does not store it.
func (c *cache) put(hash Hash, v verified, epoch int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return
	}
	if c.seen == nil {
		c.seen = make(map[Hash]verified)
	}
	for other := range c.seen { // if the cache is full, evict any entry: the next request with its secret needs a look-up
		if len(c.seen) < maxCached {
			break
		}
		delete(c.seen, other)
	}
	c.seen[hash] = v
}

// drop removes the entry of the secret with this hash.
func (c *cache) drop(hash Hash) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, hash)
}

// forget removes all entries, after a key has changed. Keys change rarely, so forget need not find the entries of the key.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	clear(c.seen)
}
