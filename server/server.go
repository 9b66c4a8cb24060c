package server

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server/socket"
	"parley/server/transport"
	"parley/stream/models"
)

// Options configure a Server.
type Options struct {
	Conversation *service.Service
	Keys         *auth.Keys
	Limits       *auth.Limits
	Page         Page // serves the files outside the API; nil if there are none
	// Ready returns nil if the service can serve requests, otherwise the reason why it cannot.
	Ready func(ctx context.Context) error
	// Models are the models that sessions can name. If RequireModel is true, /readyz fails while the default model cannot be used.
	Models       *models.Set
	RequireModel bool
	// Origins lists other origins, such as "https://chat.example.com". Their pages may open sockets too.
	Origins []string
	// PublicURL is the origin under which clients reach the server, such as "https://chat.example.com". It is the base of the
	// WebSocket's URL in responses. If it is "", the base is the Host header of each request.
	PublicURL string
	// MaxSockets is the maximum number of open sockets; 0 means no limit.
	MaxSockets int
	// Connections limits the connections and finds the address of each client. If it is nil, there are no limits and no trusted
	// proxies.
	Connections *transport.Connections
	// Metrics counts requests. If it is nil, the server creates its own.
	Metrics *Metrics
	Log     *slog.Logger
}

// Server is the HTTP handler of Parley. Its methods may be called from any goroutine.
type Server struct {
	// static
	Options
	engine      *gin.Engine
	sockets     *socket.Registry
	revocation  *socket.RevocationMonitor // ends the sockets and event streams of keys that no longer work
	audit       *auditLog
	unavailable *unavailable

	draining atomic.Bool
	unread   unreadBytes
	pages    *pages // static
}

// New returns a server.
func New(options Options) *Server {
	gin.SetMode(gin.ReleaseMode)
	if options.Metrics == nil {
		options.Metrics = NewMetrics()
	}
	if options.Connections == nil {
		options.Connections = transport.New(transport.Options{})
	}
	if options.PublicURL != "" {
		options.Origins = append(slices.Clone(options.Origins), options.PublicURL)
	}
	s := &Server{Options: options, engine: gin.New(), pages: newPages(), revocation: socket.NewRevocationMonitor(options.Keys.Revalidate)}
	s.audit = newAuditLog(options.Log, options.Metrics)
	s.unavailable = newUnavailable(options.Log, options.Metrics)
	s.sockets = socket.NewRegistry(socket.Options{
		Conversation: options.Conversation, Keys: options.Keys, Admission: options.Limits.Admission,
		Frames: options.Keys.NewFrames(options.Limits), Revocation: s.revocation,
		MaxSockets: options.MaxSockets, Audit: s.audit, Unavailable: s.unavailable, Log: options.Log,
	})
	s.route()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.engine.ServeHTTP(w, r) }

// route mounts the routes. For each route under /v1, the table names the scope that a key needs. GET /v1/stream is not in the
// table: it needs no scope, because the scope is checked for each frame.
func (s *Server) route() {
	e := s.engine
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.UseRawPath, e.UnescapePathValues = true, true // %2F is part of a path segment, not a separator
	e.ContextWithFallback = true
	_ = e.SetTrustedProxies(nil)
	e.Use(s.identify, s.Metrics.count, s.recover, s.admitConnection)
	e.NoRoute(s.noRoute)
	e.NoMethod(s.noMethod)

	// A new route also needs a description in docs/openapi.yaml, which TestOpenAPI_…, TestScopes_… and TestDocs_… compare with
	// these routes. Metrics and rate limit headers need no change.
	e.GET("/healthz", s.handle(s.health))
	e.GET("/readyz", s.handle(s.ready))
	for _, r := range []struct {
		method, path string
		scope        auth.Scope
		query        []string // the parameters that the route accepts
		handle       handler
	}{
		{"POST", "/v1/sessions", auth.WriteSessions, nil, s.createSession},
		{"GET", "/v1/sessions", auth.ReadSessions, []string{"limit", "cursor", "userId"}, s.page(s.listSessions)},
		{"GET", "/v1/sessions/:sessionId", auth.ReadSessions, nil, s.getSession},
		{"PATCH", "/v1/sessions/:sessionId", auth.WriteSessions, nil, s.updateSession},
		{"DELETE", "/v1/sessions/:sessionId", auth.WriteSessions, nil, s.deleteSession},
		{"POST", "/v1/sessions/:sessionId/messages", auth.WriteMessages, nil, s.sendMessage},
		{"GET", "/v1/sessions/:sessionId/messages", auth.ReadMessages, []string{"limit", "cursor", "order"}, s.page(s.history)},
		{"DELETE", "/v1/sessions/:sessionId/messages", auth.WriteMessages, nil, s.clearMessages},
		{"GET", "/v1/sessions/:sessionId/messages/:messageId", auth.ReadMessages, nil, s.getMessage},
		{"POST", "/v1/sessions/:sessionId/messages/:messageId/cancel", auth.WriteMessages, nil, s.cancelMessage},
		{"GET", "/v1/sessions/:sessionId/messages/:messageId/stream", auth.ReadMessages, []string{"format"}, s.streamMessage},
		{"POST", "/v1/sessions/:sessionId/context", auth.ReadMessages, nil, s.previewContext},
		{"POST", "/v1/stream/tickets", auth.ReadMessages, nil, s.issueTicket},
		{"GET", "/v1/models", auth.ReadSessions, nil, s.listModels},
		{"GET", "/v1/analytics/metrics", auth.ReadAnalytics, []string{"startDate", "endDate", "granularity"}, s.page(s.getMetrics)},
		{"GET", "/v1/analytics/usage", auth.ReadAnalytics, []string{"userId"}, s.getUsage},
		{"POST", "/v1/keys", auth.Admin, nil, s.createKey},
		{"GET", "/v1/keys", auth.Admin, []string{"limit", "cursor"}, s.listKeys},
		{"GET", "/v1/audit", auth.Admin, []string{"limit", "cursor"}, s.listAudit},
		{"DELETE", "/v1/keys/:keyId", auth.Admin, nil, s.revokeKey},
		{"POST", "/v1/keys/:keyId/rotate", auth.Admin, nil, s.rotateKey},
	} {
		e.Handle(r.method, r.path, s.handle(s.authorised(r.scope, s.strict(r.query, r.handle))))
	}
	// The handshake accepts a key or a ticket. A ticket works once, and a request with an invalid query must not use up its
	// ticket. So the query is checked first.
	e.GET("/v1/stream", s.handle(s.withAddressLimits(s.strict([]string{"ticket"}, s.openSocket))))
	s.mountDocs()
	s.mountMetrics()
}

// BeginDrain makes /readyz and new handshakes fail. Other requests still work. Sends work until the conversation service
// drains and refuses them.
func (s *Server) BeginDrain() {
	s.draining.Store(true)
	s.sockets.BeginDrain()
}

// DrainSockets closes all sockets: see [socket.Registry.Drain]. Call BeginDrain first.
func (s *Server) DrainSockets(ctx context.Context) { s.sockets.Drain(ctx) }

// Close writes the log lines about refusals that the server has not written yet. Call it after the last request.
func (s *Server) Close() { s.audit.close() }

// health reports that the process runs.
func (s *Server) health(*gin.Context) (any, error) { return gin.H{"status": "ok"}, nil }

// readyTimeout is the longest time that /readyz waits for the store: 2 s, the time within which any other request gets its
// 503.
const readyTimeout = 2 * time.Second

// ready reports whether a load balancer should send requests here. It succeeds if the store is available and the server is not
// draining. The model is only reported, unless the server requires it.
func (s *Server) ready(c *gin.Context) (any, error) {
	if s.draining.Load() {
		return nil, conversation.ErrDraining
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		return nil, conversation.Unavailable(err)
	}
	model := s.Models.Default().Status()
	if s.RequireModel && model.State != models.Ready {
		return nil, modelUnavailable(model)
	}
	return readiness{Status: "ready", Model: model.State, Reason: model.Problem, Message: model.Problem.Meaning()}, nil
}
