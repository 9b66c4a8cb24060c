// Package server is Parley's face to the network: the REST routes, the error table, the shapes of requests and
// answers, and the two ways to write a view down, WebSocket and SSE. It holds no state but the open sockets; what it
// does is decided in conversation and auth.
package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/service"
)

// Options are what a Server is made of.
type Options struct {
	Conversation *service.Service
	Keys         *auth.Keys
	Tickets      *auth.Tickets
	Limits       *auth.Limits
	Page         Page // what is served outside the API; nil for nothing
	// Ready reports why the service cannot serve, nil if it can.
	Ready func(ctx context.Context) error
	// Origins are the origins of other sites' pages that may open sockets, such as "https://chat.example.com".
	Origins []string
	// MaxSockets is how many sockets may be open at once.
	MaxSockets int
	// Metrics counts what happens here; nil is figures of the server's own.
	Metrics *Metrics
	Log     *slog.Logger
}

// Server answers requests. Its methods may be called from any goroutine.
type Server struct {
	// static
	Options
	engine *gin.Engine

	draining atomic.Bool

	mu      sync.Mutex
	sockets map[*socket]struct{} // guarded by mu
	work    sync.WaitGroup       // the sockets' goroutines

	watchman watchman // of the keys of open connections
}

// New returns a server.
func New(options Options) *Server {
	gin.SetMode(gin.ReleaseMode)
	if options.Metrics == nil {
		options.Metrics = NewMetrics()
	}
	s := &Server{
		Options: options, engine: gin.New(), sockets: make(map[*socket]struct{}), watchman: watchman{alive: options.Keys.Revalidate},
	}
	s.route()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.engine.ServeHTTP(w, r) }

// handler answers a request: with a value, which is written as JSON, or an error. Both are nil where it has written
// the answer itself.
type handler func(c *gin.Context) (any, error)

const (
	keyRequestID = "parley.requestId"
	keyPrincipal = "parley.principal"
	// maxBody is the largest body of a request, in bytes.
	maxBody = 1 << 20
	// bodyWait is how long a request's body may take to arrive; afterwards the connection is closed.
	bodyWait = 30 * time.Second
)

// route mounts the routes. Those under /v1 name the scope that a key needs (design section 2, scope of an endpoint).
func (s *Server) route() {
	e := s.engine
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.UseRawPath, e.UnescapePathValues = true, true // %2F is a part of a name, not a separator
	e.ContextWithFallback = true
	_ = e.SetTrustedProxies(nil)
	e.Use(s.identify, s.Metrics.count, s.recover)
	e.NoRoute(s.noRoute)
	e.NoMethod(s.noMethod)

	e.GET("/healthz", s.answer(s.health))
	e.GET("/readyz", s.answer(s.ready))
	for _, r := range []struct {
		method, path string
		scope        auth.Scope
		query        []string // the parameters that it knows
		handle       handler
	}{
		{"POST", "/v1/sessions", auth.WriteSessions, nil, s.createSession},
		{"GET", "/v1/sessions", auth.ReadSessions, []string{"limit", "cursor", "userId"}, s.listSessions},
		{"GET", "/v1/sessions/:sessionId", auth.ReadSessions, nil, s.getSession},
		{"DELETE", "/v1/sessions/:sessionId", auth.WriteSessions, nil, s.deleteSession},
		{"POST", "/v1/sessions/:sessionId/messages", auth.WriteMessages, nil, s.sendMessage},
		{"GET", "/v1/sessions/:sessionId/messages", auth.ReadMessages, []string{"limit", "cursor", "order"}, s.history},
		{"DELETE", "/v1/sessions/:sessionId/messages", auth.WriteMessages, nil, s.clearMessages},
		{"GET", "/v1/sessions/:sessionId/messages/:messageId", auth.ReadMessages, nil, s.getMessage},
		{"POST", "/v1/sessions/:sessionId/messages/:messageId/cancel", auth.WriteMessages, nil, s.cancelMessage},
		{"GET", "/v1/sessions/:sessionId/messages/:messageId/stream", auth.ReadMessages, []string{"format"}, s.streamMessage},
		{"POST", "/v1/sessions/:sessionId/context", auth.ReadMessages, nil, s.previewContext},
		{"POST", "/v1/stream/tickets", auth.ReadMessages, nil, s.issueTicket},
		{"GET", "/v1/analytics/metrics", auth.ReadAnalytics, []string{"startDate", "endDate", "granularity"}, s.getMetrics},
		{"GET", "/v1/analytics/usage", auth.ReadAnalytics, nil, s.getUsage},
		{"POST", "/v1/keys", auth.Admin, nil, s.createKey},
		{"GET", "/v1/keys", auth.Admin, nil, s.listKeys},
		{"DELETE", "/v1/keys/:keyId", auth.Admin, nil, s.revokeKey},
		{"POST", "/v1/keys/:keyId/rotate", auth.Admin, nil, s.rotateKey},
	} {
		e.Handle(r.method, r.path, s.answer(s.authorised(r.scope, s.strict(r.query, r.handle))))
	}
	// By key or ticket. A ticket works once, so a query that cannot be taken is refused before it is used up.
	e.GET("/v1/stream", s.answer(s.standing(s.strict([]string{"ticket"}, s.openSocket))))
	s.mountDocs()
	s.mountMetrics()
}

// identify gives every request an id: the client's own if it is sane.
func (s *Server) identify(c *gin.Context) {
	id := c.GetHeader("X-Request-Id")
	if !sane(id) {
		id = "req_" + conversation.RandomText(16)
	}
	c.Set(keyRequestID, id)
	c.Header("X-Request-Id", id)
	if c.Request.ContentLength != 0 { // else there is no body to be slow with; decodeBody lifts it
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(bodyWait))
	}
}

// sane reports whether a client's request id is 1 to 128 visible ASCII characters.
func sane(id string) bool {
	for _, c := range []byte(id) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return 0 < len(id) && len(id) <= 128
}

// recover turns a panic into a 500 and a log line.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if err, ok := r.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(r)
		}
		s.Log.Error("a handler panicked", "route", c.FullPath(), "requestId", c.GetString(keyRequestID), "panic", r, "stack", string(debug.Stack()))
		if !c.Writer.Written() {
			s.writeError(c, &apiError{status: 500, code: "internal_error", message: "Something went wrong on our side."})
		}
		c.Abort()
	}()
	c.Next()
}

// answer makes a gin handler of h: the one place where answers and errors are written.
func (s *Server) answer(h handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		value, err := h(c)
		if err != nil {
			e, fault := describe(err)
			if fault {
				s.Log.Error("a request failed", "method", c.Request.Method, "route", c.FullPath(),
					"requestId", c.GetString(keyRequestID), "error", err)
			}
			s.writeError(c, e)
			return
		}
		if value != nil {
			s.writeJSON(c, http.StatusOK, value)
		}
	}
}

func (s *Server) writeJSON(c *gin.Context, status int, value any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // our own shapes
	}
	c.Header("Cache-Control", "no-store")
	c.Data(status, "application/json; charset=utf-8", body.Bytes())
}

func (s *Server) writeError(c *gin.Context, e *apiError) {
	if e.figures != nil {
		showFigures(c.Writer.Header(), *e.figures)
	}
	if e.retryAfter > 0 {
		c.Header("Retry-After", strconv.FormatInt(seconds(e.retryAfter), 10))
	}
	if e.allow != "" {
		c.Header("Allow", e.allow)
	}
	switch e.status {
	case http.StatusUnauthorized:
		c.Header("WWW-Authenticate", "Bearer")
	case http.StatusUpgradeRequired:
		c.Header("Connection", "Upgrade")
		c.Header("Upgrade", "websocket")
	}
	s.writeJSON(c, e.status, map[string]any{"error": e.body(), "meta": s.meta(c)})
}

func (s *Server) meta(c *gin.Context) meta {
	return meta{RequestID: c.GetString(keyRequestID), Timestamp: conversation.TimeOf(time.Now())}
}

// authorised lets a request through to h if its key is valid and has the scope.
func (s *Server) authorised(scope auth.Scope, h handler) handler {
	return func(c *gin.Context) (any, error) {
		p, err := s.verify(c)
		if err != nil {
			return nil, s.unauthenticated(c, err)
		}
		return s.admitting(c, p, func(c *gin.Context) (any, error) {
			if err := requireScope(p, scope); err != nil {
				return nil, err
			}
			return h(c)
		})
	}
}

// verify returns who presents the key in the Authorization header. Where its secret was rotated out, the response says
// since when it is the old one: Deprecation, RFC 9745 (design section 2, rotation).
func (s *Server) verify(c *gin.Context) (auth.Principal, error) {
	secret := bearer(c.Request.Header)
	if secret == "" {
		return auth.Principal{}, auth.ErrInvalidToken
	}
	p, err := s.Keys.Verify(c.Request.Context(), secret)
	if err == nil && !p.DeprecatedSince.IsZero() {
		c.Header("Deprecation", "@"+strconv.FormatInt(p.DeprecatedSince.Unix(), 10))
	}
	return p, err
}

func requireScope(p auth.Principal, scope auth.Scope) error {
	if p.Has(scope) {
		return nil
	}
	return &apiError{
		status: http.StatusForbidden, code: "insufficient_scope", message: "The key lacks the scope " + string(scope) + ".",
		extra: map[string]any{"requiredScope": scope},
	}
}

// principal returns who calls; only for handlers behind authorised.
func principal(c *gin.Context) auth.Principal {
	return c.MustGet(keyPrincipal).(auth.Principal)
}

// owner returns whose data a principal is about.
func owner(p auth.Principal) conversation.Owner {
	return conversation.Owner{Account: p.Account, Mode: conversation.Mode(p.Mode)}
}

// standing shows the figures of the caller's address on what h refuses before it knows who calls.
func (s *Server) standing(h handler) handler {
	return func(c *gin.Context) (any, error) {
		showFigures(c.Writer.Header(), s.Limits.FailureStatus(address(c.Request)))
		return h(c)
	}
}

// health says that the process runs.
func (s *Server) health(*gin.Context) (any, error) { return gin.H{"status": "ok"}, nil }

// ready says whether requests should come here: the store answers and the server is not going away.
func (s *Server) ready(c *gin.Context) (any, error) {
	if s.draining.Load() {
		return nil, conversation.ErrDraining
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), 2*time.Second)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		return nil, errors.Join(conversation.ErrUnavailable, err)
	}
	return gin.H{"status": "ready"}, nil
}
