package server

import (
	"net/http"
	"net/netip"
	"strconv"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/auth/limit"
)

// setOwnerLimits sets the limit headers to the limits of the request's account and mode. If these are unknown because the
// store failed, the headers show the limit of the caller's address instead.
func (s *Server) setOwnerLimits(c *gin.Context) {
	decision, ok := auth.AdmissionOf(c.Request.Context()).Decision()
	if !ok {
		decision = s.Limits.FailureStatus(s.address(c.Request))
	}
	setLimitHeaders(c.Writer.Header(), decision)
}

// setAddressLimits sets the limit headers to the limit on failed authentications from the caller's address.
func (s *Server) setAddressLimits(c *gin.Context) {
	setLimitHeaders(c.Writer.Header(), s.Limits.FailureStatus(s.address(c.Request)))
}

// withAddressLimits sets the limit headers before it calls h. It is for handlers that may refuse a request before they know
// its principal: every response under /v1 has these headers.
func (s *Server) withAddressLimits(h handler) handler {
	return func(c *gin.Context) (any, error) {
		s.setAddressLimits(c)
		return h(c)
	}
}

// setLimitHeaders sets the three X-RateLimit headers. Their names are in Go's canonical form, because Set allocates for any other
// form.
func setLimitHeaders(h http.Header, d limit.Decision) {
	h.Set("X-Ratelimit-Limit", strconv.Itoa(d.Limit))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(d.Remaining))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(int64(d.Reset), 10))
}

// address returns the IP address of the client, also behind a trusted proxy: see [transport.Connections.Client].
func (s *Server) address(r *http.Request) netip.Addr { return s.Connections.Client(r) }

// admitConnection is middleware that responds with 503 if the server or the client has too many connections. The operator's
// routes still work. Otherwise, a supervisor could restart a server that is only full.
func (s *Server) admitConnection(c *gin.Context) {
	switch c.FullPath() {
	case "/healthz", "/readyz", "/metrics":
		return
	}
	refused := s.Connections.Admit(c.Request)
	if refused == nil {
		return
	}
	c.Header("Connection", "close")
	s.handle(func(c *gin.Context) (any, error) {
		if underV1(c.Request.URL.Path) {
			s.setAddressLimits(c)
		}
		return nil, refused
	})(c)
	c.Abort()
}
