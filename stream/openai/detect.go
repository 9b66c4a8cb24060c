package openai

import (
	"context"
	"time"
)

// detectTimeout is the timeout for each server that Detect tries. A local server responds within a few milliseconds.
const detectTimeout = 300 * time.Millisecond

// LocalServers returns the usual local addresses of Ollama and llama.cpp.
func LocalServers() []string {
	return []string{"http://127.0.0.1:11434/v1", "http://127.0.0.1:8080/v1"}
}

// Detect finds a model server. It tries the servers at baseURLs in order; without baseURLs, it tries LocalServers. It returns the
// first server that lists a chat model, and the name of that model. Detect checks the list strictly, because any program may
// listen on port 8080.
func Detect(ctx context.Context, baseURLs ...string) (baseURL, model string, ok bool) {
	return detect(ctx, withDetectTimeout, baseURLs)
}

func withDetectTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, detectTimeout)
}

// detect is Detect with a function that returns the context for the request to one server. Tests use other timeouts.
func detect(ctx context.Context, bound func(context.Context) (context.Context, context.CancelFunc), baseURLs []string) (baseURL, model string, ok bool) {
	if len(baseURLs) == 0 {
		baseURLs = LocalServers()
	}
	for _, baseURL := range baseURLs {
		ctx, cancel := bound(ctx)
		list, err := newProber(Options{BaseURL: baseURL}).list(ctx, baseURL)
		cancel()
		if first, ok := list.firstChat(); ok && err == nil && list.strict() {
			return baseURL, first.ID, true
		}
	}
	return "", "", false
}
