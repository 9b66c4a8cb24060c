package models

import (
	"log/slog"
	"sync"

	"parley/stream/openai"
)

// State is the state of a model.
type State string

// The states of a model:
//
//	unknown      the first probe has not ended
//	ready        the newest probe found the model, or a reply has completed
//	unreachable  the newest probe did not find the model, nor did the one before it if the model was ready; Status.Problem is
//	             the reason
//	simulated    no model is configured, and the simulated model answers
//
// A ready model becomes unreachable only after two failed probes in a row, so that one lost connection does not make /readyz flap. A
// probe that the server refuses because of its rate (429) changes nothing.
//
// A completed reply is better evidence than a list of models: after the first reply, a probe that does not find the model in
// the list (unknown_model, no_chat_model, not_an_api, missing_version) no longer changes the state. Some servers have no list,
// or have models that they do not list.
const (
	Unprobed    State = "unknown"
	Ready       State = "ready"
	Unreachable State = "unreachable"
	Simulated   State = "simulated"
)

// Status is a state with its reason.
type Status struct {
	State   State
	Problem openai.Problem // set only if State is Unreachable
}

// listProblems are the problems that a completed reply disproves.
var listProblems = map[openai.Problem]bool{
	openai.UnknownModel: true, openai.NoChatModel: true, openai.NotAnAPI: true, openai.MissingVersion: true,
}

// status is the status of a model. It logs each change of the status once. The methods may be called from any goroutine.
type status struct {
	// static
	name string
	log  *slog.Logger

	mu       sync.Mutex
	current  Status // guarded by mu
	answered bool   // guarded by mu; whether a reply of this server has completed
	doubted  bool   // guarded by mu; whether the model is ready, but the newest probe did not find it
}

func (s *status) get() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// certain reports whether the model is ready, and the newest probe did not fail.
func (s *status) certain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.State == Ready && !s.doubted
}

// probed records the result of a probe; problem is "" if it found the model. probed returns false if the probe must be
// repeated soon.
func (s *status) probed(problem openai.Problem) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem != "" && !(s.answered && listProblems[problem]) {
		if s.current.State == Ready && !s.doubted {
			s.doubted = true
		} else {
			s.setLocked(Status{Unreachable, problem})
		}
		return false
	}
	s.setLocked(Status{State: Ready})
	return true
}

// replied records that a reply has completed.
func (s *status) replied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = true
	s.setLocked(Status{State: Ready})
}

// simulate records that the simulated model answers.
func (s *status) simulate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(Status{State: Simulated})
}

func (s *status) setLocked(next Status) {
	s.doubted = false
	if next == s.current {
		return
	}
	s.current = next
	switch next.State {
	case Ready:
		s.log.Info("the model is ready", "model", s.name)
	case Unreachable:
		s.log.Warn("the model cannot be used: "+next.Problem.Meaning(), "model", s.name, "problem", string(next.Problem),
			"advice", next.Problem.Advice())
	case Simulated:
		s.log.Warn("no model is configured and no local model server responds: the simulated model answers, which is no AI",
			"advice", "set OPENAI_BASE_URL or PARLEY_MODELS, or start Ollama or llama.cpp on this machine")
	}
}
