package models

import (
	"context"
	"errors"
	"time"

	"parley/stream/openai"
)

// intervals are the times between probes. Tests use shorter ones.
type intervals struct {
	// retryFirst and retryMost are the first and the longest delay before a failed probe is repeated. A model server that starts
	// together with this server is found soon; one that stays away costs six connections a minute.
	retryFirst, retryMost time.Duration
	// probeEvery is the interval of the probes of a server that answers. Replies that fail because of the server cause a probe at
	// once, so this interval matters only to a server without traffic.
	probeEvery time.Duration
	// detectEvery is the interval of the searches for a local model server. A search takes at most 0.6 s, so a server that
	// appears is found within 10 s.
	detectEvery time.Duration
}

var defaultIntervals = intervals{
	retryFirst: time.Second, retryMost: 10 * time.Second, probeEvery: time.Minute, detectEvery: 5 * time.Second,
}

// probeTimeout is longer than a busy local server or a distant one takes to list its models.
const probeTimeout = 10 * time.Second

// watch probes the server of the model until ctx is done. If the model has no server, watch first looks for a local one at the
// addresses local.
func (m *Model) watch(ctx context.Context, local []string) {
	for m.server.BaseURL == "" {
		if !pause(ctx, m.pace.detectEvery) {
			return
		}
		m.detect(ctx, local)
	}
	for retry := m.pace.retryFirst; ; {
		found := m.probe(ctx)
		wait := m.pace.probeEvery
		if found {
			retry = m.pace.retryFirst
		} else {
			wait, retry = retry, min(2*retry, m.pace.retryMost)
		}
		if !m.await(ctx, wait, found) {
			return
		}
	}
}

// detect looks for a local model server, and uses the first one.
func (m *Model) detect(ctx context.Context, local []string) {
	baseURL, first, found := openai.Detect(ctx, local...)
	if !found {
		return
	}
	m.server.BaseURL = baseURL
	if m.server.Name == "" {
		m.server.Name = first
	}
	m.useServer()
	m.status.log.Info("a local model server responds: its model answers from now on", "address", baseURL, "model", m.server.Name)
}

// probe probes the server once. It returns false if the probe must be repeated soon.
func (m *Model) probe(ctx context.Context) (found bool) {
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answer, err := openai.Probe(limited, m.server, !m.learned)
	if ctx.Err() != nil {
		return false
	}
	if err == openai.ErrRateLimited { // the server is alive, and says nothing about the model
		return m.status.certain()
	}
	problem, _ := errors.AsType[openai.Problem](err)
	switch {
	case err == nil:
		m.learned = true
		m.context.found(answer)
		if m.client.Load() == nil || m.server.Name != answer.Name {
			m.server.Name = answer.Name
			m.useServer()
		}
	case problem == openai.UnknownModel:
		m.server.Name = m.config.Model // if none is configured, the next probe takes the first one of the list again
	case !listProblems[problem]:
		m.learned = false
		m.context.forget()
	}
	return m.status.probed(problem)
}

// await waits for the next probe. If the last one found the model, a reply that fails because of the server ends the wait, but not
// in the first second (retryFirst). It returns false if ctx is done.
func (m *Model) await(ctx context.Context, wait time.Duration, found bool) bool {
	if !pause(ctx, m.pace.retryFirst) {
		return false
	}
	var failed <-chan struct{}
	if found {
		failed = m.failed
	}
	select {
	case <-ctx.Done():
		return false
	case <-failed:
	case <-time.After(wait - m.pace.retryFirst):
	}
	return true
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
