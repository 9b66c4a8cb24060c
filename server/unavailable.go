package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"parley/server/api"
)

// unavailableInterval is the time between two log lines about 503s of the same cause. While a store is away, every request gets a
// 503, and thousands of equal lines a second could fill the disk.
const unavailableInterval = time.Minute

// unavailable counts the 503s by their cause, and logs them. The methods may be called from any goroutine.
type unavailable struct {
	// static
	log    *slog.Logger
	counts *prometheus.CounterVec // by cause

	mu     sync.Mutex
	causes map[string]*refused // guarded by mu; the state of each cause that has had a line
}

// newUnavailable returns an unavailable, and registers its counter in m.
func newUnavailable(log *slog.Logger, m *Metrics) *unavailable {
	u := &unavailable{log: log, causes: make(map[string]*refused), counts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "parley_unavailable_total", Help: "Requests and frames that got the error service_unavailable (503), by cause.",
	}, []string{"cause"})}
	for _, cause := range api.Causes() {
		u.counts.WithLabelValues(cause) // a counter exists before its first event, so that a rate over time finds the event
	}
	m.registry.MustRegister(u.counts)
	return u
}

// Record counts a 503 and implements [socket.Unavailable]. The first 503 of a cause gets a log line at once. Later
// lines of that cause follow at intervals of a minute or more; each has the number of 503s since the previous line. A
// caller that has left gets no line. err is logged only if the server or its store is at fault. request holds the
// attributes of the request.
func (u *unavailable) Record(cause string, err error, fault bool, request ...any) {
	u.counts.WithLabelValues(cause).Inc()
	if cause == api.CallerLeft {
		return
	}
	count := u.due(cause)
	switch {
	case count == 0:
	case fault:
		u.log.Error("service unavailable", append(request, "cause", cause, "count", count, "error", err)...)
	default:
		u.log.Log(context.Background(), slog.LevelWarn, "service unavailable", append(request, "cause", cause, "count", count)...)
	}
}

// due returns the number of 503s that the next line about the cause reports; 0 if no line is due.
func (u *unavailable) due(cause string) (count int) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	state := u.causes[cause]
	if state == nil {
		state = &refused{line: now.Add(-unavailableInterval)}
		u.causes[cause] = state
	}
	state.count++
	if now.Sub(state.line) < unavailableInterval {
		return 0
	}
	count = state.count
	*state = refused{line: now}
	return count
}
