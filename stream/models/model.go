package models

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"parley/stream"
	"parley/stream/openai"
	"parley/stream/simulated"
)

// Model is a configured model. It implements [stream.Model] by the client of its server. All methods may be called from any
// goroutine.
type Model struct {
	// static
	config Config
	outer  stream.Model // requests of replies go through outer to inner, and from inner to the client
	pace   intervals
	failed chan struct{} // gets a value when a reply has failed because of the server; its capacity is 1

	client  atomic.Pointer[client] // nil while the provider's name for the model is unknown
	status  status
	context contextSize
	scale   scale

	// owned by watch, and by Find before it
	server  openai.Options // without BaseURL until a local server is found; without Name until it is learned
	learned bool           // whether a probe has asked everywhere for the size of the context since the server was away
}

var _ stream.Model = (*Model)(nil)

// client generates the replies of a Model.
type client struct {
	stream.Model
	server    openai.Options // the zero value if there is no server
	simulated bool
}

// New returns a model with the configured name that generates replies by generator. contextTokens is the configured size of its
// context in the provider's tokens; 0 means that it is unknown. The model is ready, and is never probed.
func New(name string, generator stream.Model, contextTokens int) *Model {
	m := newModel(Config{Name: name, ContextTokens: contextTokens}, slog.New(slog.DiscardHandler))
	m.client.Store(&client{Model: generator, server: openai.Options{Name: generator.Name()}})
	m.status.current = Status{State: Ready}
	return m
}

func newModel(config Config, log *slog.Logger) *Model {
	m := &Model{
		config: config, pace: defaultIntervals, failed: make(chan struct{}, 1), context: contextSize{configured: config.ContextTokens},
		status: status{name: config.Name, log: log, current: Status{State: Unprobed}},
		server: openai.Options{BaseURL: config.BaseURL, Key: config.Key, Name: config.Model},
	}
	m.outer = inner{m}
	return m
}

// useServer makes m.server answer. Replies that are being generated keep the earlier client.
func (m *Model) useServer() {
	m.client.Store(&client{Model: openai.New(m.server), server: m.server})
}

// useSimulated makes the simulated model answer.
func (m *Model) useSimulated() {
	s := simulated.New(simulated.Options{})
	m.client.Store(&client{Model: s, server: openai.Options{Name: s.Name()}, simulated: true})
	m.status.simulate()
}

// Name returns the configured name of the model, for example "fast". Analytics and metrics use it. The provider's name for the
// model may differ.
func (m *Model) Name() string { return m.config.Name }

// String returns the name of the model, so that printing a model does not print its key.
func (m *Model) String() string { return m.config.Name }

// GoString returns the same as String.
func (m *Model) GoString() string { return m.config.Name }

// Config returns the configuration of the model.
func (m *Model) Config() Config { return m.config }

// Server returns the address and the key of the model's server, and the provider's name for the model. The name is "" while it is
// unknown. The address is "" if the simulated model answers.
func (m *Model) Server() openai.Options {
	if c := m.client.Load(); c != nil {
		return c.server
	}
	return openai.Options{BaseURL: m.config.BaseURL, Key: m.config.Key}
}

// Status returns the state of the model.
func (m *Model) Status() Status { return m.status.get() }

// Generate requests one reply (see [stream.Model]).
func (m *Model) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	return m.outer.Generate(ctx, request, write)
}

// inner is the part of a Model behind the function Options.Wrap.
type inner struct{ *Model }

// Generate implements stream.Model.
func (m inner) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	c := m.client.Load()
	if c == nil {
		return stream.Result{}, m.unnamed()
	}
	result, err := c.Generate(ctx, request, write)
	switch {
	case c.simulated:
	case err == nil:
		m.status.replied()
	case openai.Doubtful(err):
		m.wake()
	}
	return result, err
}

// wake makes watch probe the server at once, if the model is ready.
func (m *Model) wake() {
	select {
	case m.failed <- struct{}{}:
	default:
	}
}

// unnamed returns the error for a request while the provider's name for the model is unknown.
func (m *Model) unnamed() error {
	e := &stream.ModelError{
		Code:    stream.CodeProviderError,
		Message: "the model is not known yet: the model server has not listed its models",
	}
	if problem := m.Status().Problem; problem != "" {
		e.Cause = problem
	}
	return e
}

// ContextTokens returns the size of the model's context in the provider's tokens; 0 if it is unknown.
func (m *Model) ContextTokens() int {
	tokens, _ := m.context.get(time.Now())
	return tokens
}

// Context returns the size of the model's context like ContextTokens, and how it is known.
func (m *Model) Context() (tokens int, source Source) { return m.context.get(time.Now()) }

// Scale returns the number of the provider's tokens for one token of our estimate, from 0.5 to 8. It is 1 until it is learned.
func (m *Model) Scale() float64 { return m.scale.get() }

// ObservePrompt learns from a finished request of an account: our estimate of its prompt, and the provider's usage.prompt_tokens.
func (m *Model) ObservePrompt(account string, estimated, actual int) {
	m.scale.observe(account, estimated, actual)
}

// ObserveContext learns the size of the model's context from a request that the provider refused as too long. The size is used if
// none is known, or if it is smaller than the size that the server reports; it never replaces a configured size. It is forgotten
// after refusalLife, when the server was away, or when the server reports another size than before.
func (m *Model) ObserveContext(tokens int) { m.context.refusedAt(tokens, time.Now()) }
