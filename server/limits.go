package server

import (
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/auth/limit"
)

// admit lets a request of the principal through, or refuses it by a limit, and shows the limits' figures on its
// response (design section 6).
func (s *Server) admit(c *gin.Context, p auth.Principal) error {
	decision, err := s.Limits.Admit(c.Request.Context(), p)
	if err != nil {
		return err
	}
	showFigures(c.Writer.Header(), decision)
	if !decision.Admitted() {
		return limited(decision)
	}
	return nil
}

// unauthenticated is the error of a request without a valid key: 401, or 429 for an address that has had too many.
// Another error of the verification is returned as it is.
func (s *Server) unauthenticated(c *gin.Context, err error) error {
	if !errors.Is(err, auth.ErrInvalidToken) {
		showFigures(c.Writer.Header(), s.Limits.Standing(address(c.Request)))
		return err
	}
	decision := s.Limits.Fail(address(c.Request))
	showFigures(c.Writer.Header(), decision)
	if !decision.Admitted() {
		return limited(decision)
	}
	return err
}

// address returns where a request comes from. What proxies say of that is not believed.
func address(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{} // a Unix socket; all of these count as one
	}
	return from.Addr().Unmap()
}

// showFigures sets the three headers of rule 1 of the limits in the spec.
func showFigures(h http.Header, d limit.Decision) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(d.Limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(d.Remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(int64(d.Reset), 10))
}

// limited is the error of a request that a limit refuses.
func limited(d limit.Decision) *apiError {
	return &apiError{
		status: http.StatusTooManyRequests, code: "rate_limit_exceeded",
		message:    "The limit of " + strconv.Itoa(d.Limit) + " " + d.Refused.String() + " is reached.",
		retryAfter: time.Duration(d.RetryAfter) * time.Second,
		figures:    &d,
	}
}
