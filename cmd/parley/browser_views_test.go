package main

import (
	"context"
	"testing"

	"parley/web/browsertest"
)

// TestPageViews tests how the page handles failures of the network and the key, a full context window, the rate limit, and
// hostile content. It checks every view for accessibility. The first four scenarios take more than a minute each. go test starts
// parallel tests in the order of the files and of this list, so they do not run alone at the end.
func TestPageViews(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, browser context.Context)
	}{
		{"hostile Markdown runs nothing", hostileReplies},
		{"rate limit counts down and recovers", viewRateLimit},
		{"expired key hides the conversation", viewKeyExpired},
		{"every view is accessible", everyView},
		{"reply resumes when the browser is online again", viewOffline},
		{"revoked key hides the conversation", viewKeyRevoked},
		{"context overflow shows numbers and an action", viewOverflow},
		{"hostile titles, metadata and errors run nothing", hostileMetadata},
		{"hostile session id requests no other resource", hostileAddress},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			scenario.play(t, browser)
		})
	}
}
