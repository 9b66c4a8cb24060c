package models

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"parley/stream"
)

// DefaultName is the name of the only model if the configuration gives it none.
const DefaultName = "default"

// Options configure a [Set].
type Options struct {
	// Models are the configured models. If the first has no BaseURL, a local model server answers for it, and the simulated model
	// until one is found.
	Models []Config
	// Local are the addresses where a local model server may run; without them, the usual addresses of Ollama and llama.cpp.
	Local []string
	// Wrap, if it is not nil, wraps what generates the replies of each model, for example to count them. The Name of the model that
	// it gets is the configured name.
	Wrap func(stream.Model) stream.Model
	Log  *slog.Logger
}

// Set is the list of the configured models. The list does not change. All methods except Find, Start and Close may be called from
// any goroutine.
type Set struct {
	// static
	models []*Model // at least one; the first is the default
	byName map[string]*Model
	local  []string
	opened time.Time

	watches sync.WaitGroup
	stop    context.CancelFunc // set by Start
}

// Open returns the set of the configured models. It sends no request before Find and Start.
func Open(o Options) *Set {
	all := make([]*Model, len(o.Models))
	for i, config := range o.Models {
		m := newModel(config, o.Log)
		if o.Wrap != nil {
			m.outer = o.Wrap(m.outer)
		}
		if config.BaseURL != "" && config.Model != "" {
			m.useServer()
		}
		all[i] = m
	}
	s := Of(all...)
	s.local = o.Local
	return s
}

// Of returns the set of the given models, which must have different names. The first model is the default.
func Of(models ...*Model) *Set {
	s := &Set{models: models, byName: make(map[string]*Model, len(models)), opened: time.Now()}
	for _, m := range models {
		s.byName[m.Name()] = m
	}
	return s
}

// Find looks for a local model server, if the default model has no BaseURL. It returns false if it finds none; then the simulated
// model answers from Start on. It may be called once, before Start.
func (s *Set) Find(ctx context.Context) (found bool) {
	m := s.Default()
	if m.server.BaseURL == "" {
		m.detect(ctx, s.local)
	}
	return m.server.BaseURL != ""
}

// Start starts the probes in the background, until Close. It must be called once, and only for a set of Open.
func (s *Set) Start() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	for _, m := range s.models {
		if m.server.BaseURL == "" {
			m.useSimulated()
		}
		s.watches.Go(func() { m.watch(ctx, s.local) })
	}
}

// Close stops the probes and waits for them. The models still generate replies.
func (s *Set) Close() {
	s.stop()
	s.watches.Wait()
}

// Opened returns the time at which the set was made.
func (s *Set) Opened() time.Time { return s.opened }

// Simulated reports whether the simulated model answers, because no model is configured and no local server was found.
func (s *Set) Simulated() bool { return s.Default().Status().State == Simulated }

// Default returns the model of sessions that name none.
func (s *Set) Default() *Model { return s.models[0] }

// Lookup returns the model with that name; "" is the default. ok is false if no model has the name.
func (s *Set) Lookup(name string) (m *Model, ok bool) {
	if name == "" {
		return s.Default(), true
	}
	m, ok = s.byName[name]
	return m, ok
}

// Models returns the models in the order of the configuration. The caller must not change the slice.
func (s *Set) Models() []*Model { return s.models }

// Names returns the names of all models in the order of the configuration.
func (s *Set) Names() []string {
	names := make([]string, len(s.models))
	for i, m := range s.models {
		names[i] = m.Name()
	}
	return names
}
