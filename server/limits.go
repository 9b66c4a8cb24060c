package server

import (
	"net/http"
	"net/netip"
	"strconv"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/auth/limit"
)

// setOwnerLimits sets the limit headers to those of the request's account and mode. If these are unknown because the
// store failed, they are those of the caller's address.
func (s *Server) setOwnerLimits(c *gin.Context) {
	decision, ok := auth.AdmissionOf(c.Request.Context()).Decision()
	if !ok {
		decision = s.Limits.FailureStatus(address(c.Request))
	}
	setLimitHeaders(c.Writer.Header(), decision)
}

// setAddressLimits sets the limit headers to those of failed authentications from the caller's address.
func (s *Server) setAddressLimits(c *gin.Context) {
	setLimitHeaders(c.Writer.Header(), s.Limits.FailureStatus(address(c.Request)))
}

// withAddressLimits sets the limit headers before h, for a handler that may refuse a request before it knows who calls:
// every response under /v1 has these headers.
func (s *Server) withAddressLimits(h handler) handler {
	return func(c *gin.Context) (any, error) {
		s.setAddressLimits(c)
		return h(c)
	}
}

// setLimitHeaders sets the three X-RateLimit headers.
func setLimitHeaders(h http.Header, d limit.Decision) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(d.Limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(d.Remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(d.Reset), 10))
}

// address returns where a request comes from. Headers that proxies set are ignored: any client can send them.
func address(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // a Unix socket; all of its clients count as one
	}
	return from.Addr().Unmap()
}
