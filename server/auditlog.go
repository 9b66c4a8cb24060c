package server

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"parley/auth"
	"parley/server/socket"
)

const (
	// refusalInterval is the time between two log lines about the same kind of refusal.
	refusalInterval = time.Minute
	// maxRefusals is the maximum number of kinds that have lines of their own. It bounds the memory (about 200 KB) and the log
	// (1,000 lines a minute) if an attacker changes addresses or accounts all the time. Further refusals share one line a
	// minute.
	maxRefusals = 1_000
)

// auditLog writes the log lines that an auditor needs, and counts the events in the metrics. Each line has the message "audit"
// and the attribute event. The lines contain no secret. A key operation and a closed socket have a line each. Refusals are
// aggregated: there is at most one line a minute for each kind, with the number of refusals since the last line. The methods
// may be called from any goroutine.
type auditLog struct {
	// static
	log        *slog.Logger
	operations *prometheus.CounterVec // by action
	failures   *prometheus.CounterVec // by credential
	quotas     *prometheus.CounterVec // by quota
	closed     *prometheus.CounterVec // by cause

	mu       sync.Mutex
	refusals map[refusal]*refused // guarded by mu
	rest     int                  // guarded by mu; number of refusals, since the last line, of kinds that are not in refusals
	timer    *time.Timer          // guarded by mu; calls tick; nil if refusals is empty
}

// refusal is a kind of refusal. Fields that do not apply are "".
type refusal struct {
	event, credential, address, prefix, account, mode, quota string
}

// The events of refusals.
const (
	authenticationRefused = "authentication.refused"
	quotaRefused          = "quota.refused"
)

// refused is the state of a kind of refusal.
type refused struct {
	count int       // since the last line
	line  time.Time // the time of the last line
}

// newAuditLog returns an auditLog, and registers its counters in m.
func newAuditLog(log *slog.Logger, m *Metrics) *auditLog {
	counter := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			c.WithLabelValues(value) // a counter exists before its first event, so that a rate over time finds the event
		}
		m.registry.MustRegister(c)
		return c
	}
	return &auditLog{
		log: log, refusals: make(map[refusal]*refused),
		operations: counter("parley_key_operations_total", "Operations on keys over the API, by action.", "action",
			string(auth.KeyCreated), string(auth.KeyRotated), string(auth.KeyRevoked)),
		failures: counter("parley_authentication_failures_total", "Requests without a valid key or ticket, by credential: key, ticket or none.",
			"credential", "key", "ticket", "none"),
		quotas: counter("parley_quota_refusals_total", "Requests that a quota refused, by quota.", "quota"),
		closed: counter("parley_sockets_closed_total", "WebSockets that the server closed because of the client or its key, by cause.", "cause",
			socket.Causes()...),
	}
}

// keyOperation records a successful operation of a caller on a key.
func (a *auditLog) keyOperation(action auth.Action, by auth.Principal, actor, keyID string) {
	a.operations.WithLabelValues(string(action)).Inc()
	a.log.Info("audit", "event", string(action), "account", by.Account, "mode", by.Mode, "keyId", keyID, "actor", actor)
}

// SocketClosed implements socket.Audit.
func (a *auditLog) SocketClosed(h socket.Handshake, cause string) {
	a.closed.WithLabelValues(cause).Inc()
	p := h.Principal
	a.log.Info("audit", "event", "socket.closed", "cause", cause, "account", p.Account, "mode", p.Mode, "keyId", p.KeyID, "requestId", h.RequestID)
}

// QuotaRefused implements socket.Audit.
func (a *auditLog) QuotaRefused(p auth.Principal, e *auth.QuotaError) {
	a.quotas.WithLabelValues(string(e.Quota)).Inc()
	a.refuse(refusal{event: quotaRefused, account: p.Account, mode: p.Mode, quota: string(e.Quota)})
}

// authenticationRefused records a request from an address without a valid key or ticket. credential is "key", "ticket" or
// "none". prefix is the beginning of the key.
func (a *auditLog) authenticationRefused(from netip.Addr, credential, prefix string) {
	a.failures.WithLabelValues(credential).Inc()
	a.refuse(refusal{event: authenticationRefused, credential: credential, address: networkOf(from), prefix: prefix})
}

// networkOf returns the text of an IPv4 address, or of the /64 network of an IPv6 address: one customer usually has all addresses
// of such a network.
func networkOf(from netip.Addr) string {
	if from = from.Unmap(); from.Is6() {
		if network, err := from.Prefix(64); err == nil {
			return network.String()
		}
	}
	return from.String()
}

// refuse counts a refusal. The first refusal of a kind gets a log line at once.
func (a *auditLog) refuse(r refusal) {
	now := time.Now()
	a.mu.Lock()
	known := a.refusals[r]
	switch {
	case known != nil:
		known.count++
	case len(a.refusals) >= maxRefusals:
		a.rest++
	default:
		a.refusals[r] = &refused{line: now}
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(refusalInterval, a.tick)
	}
	first := a.refusals[r] != known
	a.mu.Unlock()
	if first {
		a.write(r, 1)
	}
}

// tick writes the lines that are due, and forgets the kinds without refusals since their last line.
func (a *auditLog) tick() {
	a.flush(time.Now().Add(-refusalInterval))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer = nil; len(a.refusals) > 0 {
		a.timer = time.AfterFunc(refusalInterval, a.tick)
	}
}

// flush handles each kind that has had no line since the given time. If the kind has had refusals since its last line, flush
// writes a line. Otherwise, it forgets the kind. It also writes a line about the refusals that a.rest counts.
func (a *auditLog) flush(before time.Time) {
	counts := make(map[refusal]int)
	a.mu.Lock()
	for r, state := range a.refusals {
		switch {
		case state.line.After(before):
		case state.count == 0:
			delete(a.refusals, r)
		default:
			counts[r] = state.count
			*state = refused{line: time.Now()}
		}
	}
	rest := a.rest
	a.rest = 0
	a.mu.Unlock()
	for r, count := range counts {
		a.write(r, count)
	}
	if rest > 0 {
		a.log.Info("audit", "event", "others.refused", "count", rest)
	}
}

// close writes lines about the refusals that no line contains yet.
func (a *auditLog) close() {
	a.mu.Lock()
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	a.flush(time.Now())
}

func (a *auditLog) write(r refusal, count int) {
	attributes := []slog.Attr{slog.String("event", r.event), slog.Int("count", count)}
	for _, attribute := range []struct{ name, value string }{
		{"credential", r.credential}, {"address", r.address}, {"prefix", r.prefix},
		{"account", r.account}, {"mode", r.mode}, {"quota", r.quota},
	} {
		if attribute.value != "" {
			attributes = append(attributes, slog.String(attribute.name, attribute.value))
		}
	}
	a.log.LogAttrs(context.Background(), slog.LevelInfo, "audit", attributes...)
}
