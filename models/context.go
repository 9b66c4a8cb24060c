package models

import (
	"sync"

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

// contextSize is the size of a model's context, as far as it is known. The methods may be called from any goroutine.
type contextSize struct {
	// static
	configured int // 0 if it is not configured

	mu      sync.Mutex
	probed  int    // guarded by mu; the size that the newest probe with a size found; 0 if none did
	source  Source // guarded by mu; the source of probed
	refused int    // guarded by mu; the smallest size of a refusal; 0 if there was none
}

// get returns the size in the provider's tokens, and its source. The size is 0 if it is unknown.
func (c *contextSize) get() (tokens int, source Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.configured > 0:
		tokens, source = c.configured, Configured
	case c.probed > 0:
		tokens, source = c.probed, c.source
	default:
		source = Unknown
	}
	if c.refused > 0 && (tokens == 0 || c.refused < tokens) {
		return c.refused, Refusal
	}
	return tokens, source
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
func (c *contextSize) refusedAt(tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tokens > 0 && (c.refused == 0 || tokens < c.refused) {
		c.refused = tokens
	}
}

// forget forgets refusals, because the server was away: it may come back with another context.
func (c *contextSize) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = 0
}
