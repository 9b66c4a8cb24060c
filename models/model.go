package models

import (
	"context"
	"sync"

	"parley/stream"
)

// Model is a configured model. It implements [stream.Model] by the client of its server. All methods may be called from any
// goroutine.
type Model struct {
	// static
	name   string
	client stream.Model

	mu      sync.Mutex
	context int // guarded by mu; size of the model's context in the provider's tokens; 0 if unknown
}

var _ stream.Model = (*Model)(nil)

// New returns a model with the configured name that generates replies by client. contextTokens is the configured size of its
// context in the provider's tokens; 0 means that it is unknown.
func New(name string, client stream.Model, contextTokens int) *Model {
	return &Model{name: name, client: client, context: contextTokens}
}

// Name returns the configured name of the model, for example "fast". Analytics and metrics use it. The provider's name for the
// model may differ.
func (m *Model) Name() string { return m.name }

// Generate requests one reply (see [stream.Model]).
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	return m.client.Generate(ctx, request, write)
}

// ContextTokens returns the size of the model's context in the provider's tokens; 0 if it is unknown.
func (m *Model) ContextTokens() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.context
}

// Scale returns the number of the provider's tokens for one token of our estimate; 1 until it is learned.
func (m *Model) Scale() float64 { return 1 }

// ObservePrompt learns from a finished request: our estimate of its prompt, and the provider's usage.prompt_tokens.
func (m *Model) ObservePrompt(estimated, actual int) {}

// ObserveContext learns the size of the model's context from a request that the provider refused as too long. The size is used
// only if nothing better is known, or if it is smaller than the known size.
func (m *Model) ObserveContext(tokens int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if tokens > 0 && (m.context == 0 || tokens < m.context) {
		m.context = tokens
	}
}
