package server

import (
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/gin-gonic/gin"

	"parley/conversation"
)

// Routes returns the routes of a server.
func Routes(s *Server) gin.RoutesInfo { return s.engine.Routes() }

// FillPages takes all places for pages that the server builds for an owner at the same time. empty frees one place.
func FillPages(s *Server, owner conversation.Owner) (empty func()) {
	group := s.pages.groups[maphash.Comparable(s.pages.seed, owner)%pageGroups]
	for range maxPages {
		group <- struct{}{}
	}
	return func() { <-group }
}

// CountedHandler returns a handler with one route, which does nothing. m counts the requests.
func CountedHandler(m *Metrics) http.Handler {
	m.routes[route{"GET", "/v1/things/:id"}] = m.newRoute("GET", "/v1/things/:id")
	return things(m.count)
}

// UncountedHandler returns a handler with the same route. No metrics count the requests.
func UncountedHandler(*Metrics) http.Handler { return things(func(c *gin.Context) { c.Next() }) }

func things(middleware gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(middleware)
	e.GET("/v1/things/:id", func(*gin.Context) {})
	return e
}

// AuditLog is the log of a server for auditors.
type AuditLog struct{ *auditLog }

// NewAuditLog returns an AuditLog that writes to log.
func NewAuditLog(log *slog.Logger) AuditLog { return AuditLog{newAuditLog(log, NewMetrics())} }

// RefuseKey records a request with a wrong key.
func (a AuditLog) RefuseKey(from netip.Addr, prefix string) {
	a.authenticationRefused(from, "key", prefix)
}

// Close writes the lines that are not written yet.
func (a AuditLog) Close() { a.close() }

// Kinds returns the number of kinds of refusals in memory.
func (a AuditLog) Kinds() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.refusals)
}
