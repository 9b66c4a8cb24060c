package models

// Set is the list of the configured models. It does not change, so its methods may be called from any goroutine.
type Set struct {
	// static
	models []*Model // at least one; the first is the default
	byName map[string]*Model
}

// Of returns the set of the given models, which must have different names. The first model is the default.
func Of(models ...*Model) *Set {
	s := &Set{models: models, byName: make(map[string]*Model, len(models))}
	for _, m := range models {
		s.byName[m.Name()] = m
	}
	return s
}

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

// Names returns the names of all models in the order of the configuration.
func (s *Set) Names() []string {
	names := make([]string, len(s.models))
	for i, m := range s.models {
		names[i] = m.Name()
	}
	return names
}
