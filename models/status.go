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
//	unreachable  the newest probe did not find the model; Status.Problem is the reason
//	simulated    no model is configured, and the simulated model answers
//
// A completed reply is better evidence than a list of models: after the first reply, a probe that does not find the model in the
// list (unknown_model, no_chat_model, not_an_api, missing_version) no longer changes the state. Some servers have no list, or have
// models that they do not list.
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
}

func (s *status) get() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// probed records the result of a probe; problem is "" if it found the model. probed returns whether the model is ready.
func (s *status) probed(problem openai.Problem) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem != "" && !(s.answered && listProblems[problem]) {
		s.setLocked(Status{Unreachable, problem})
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
