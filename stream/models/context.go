package models

import (
	"sync"
	"time"

	"parley/stream/openai"
)

// Source says how the size of a model's context is known.
type Source string

// The sources of a size. The sources of package openai (listed, props, show) come between Configured and Refusal.
const (
	Configured Source = "configured"
	Refusal    Source = "refusal" // a request that the provider refused as too long
	Unknown    Source = "unknown"
)

// refusalLife is the time for which the size in a refusal counts. The provider may have refused because of one small backend of
// many, or may have been started again with a larger context, and then nothing shows the larger size. After this time, one turn may be
// refused again: it plans a shorter prompt, and costs one request more.
const refusalLife = 10 * time.Minute

// contextSize is the size of a model's context, as far as it is known. The methods may be called from any goroutine.
type contextSize struct {
	// static
	configured int // 0 if it is not configured

	mu      sync.Mutex
	probed  int       // guarded by mu; the size that the newest probe with a size found; 0 if none did
	source  Source    // guarded by mu; the source of probed
	refused int       // guarded by mu; the smallest size of a refusal; 0 if there was none
	until   time.Time // guarded by mu; the time at which refused ceases to count
}

// get returns the size in the provider's tokens, and its source. The size is 0 if it is unknown.
func (c *contextSize) get(now time.Time) (tokens int, source Source) {
	if c.configured > 0 {
		return c.configured, Configured
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch refused := c.refusedLocked(now); {
	case refused > 0 && (c.probed == 0 || refused < c.probed):
		return refused, Refusal
	case c.probed > 0:
		return c.probed, c.source
	}
	return 0, Unknown
}

// refusedLocked returns the smallest size of a refusal that still counts; 0 if there is none.
func (c *contextSize) refusedLocked(now time.Time) int {
	if !now.Before(c.until) {
		return 0
	}
	return c.refused
}

// found learns from a probe. If the server reports another size than before, it has been restarted, and an earlier refusal no
// longer counts. A probe without a size changes nothing.
func (c *contextSize) found(f openai.Found) {
	if f.ContextTokens == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.ContextTokens != c.probed && c.probed > 0 {
		c.refused = 0
	}
	c.probed, c.source = f.ContextTokens, Source(f.Source)
}

// refusedAt learns from a refusal that names the size of the context.
func (c *contextSize) refusedAt(tokens int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.refusedLocked(now); tokens > 0 && (known == 0 || tokens <= known) {
		c.refused, c.until = tokens, now.Add(refusalLife)
	}
}

// forget forgets refusals, because the server was away: it may come back with another context.
func (c *contextSize) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = 0
}
