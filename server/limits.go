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
	"parley/conversation"
)

// admitting has h answer a request of the principal. The first operation of the store admits it (see auth.Admission); what
// reaches none, a bad request as a rule, is admitted afterwards: a limit's refusal goes before any other error. Where the
// store has failed it is not asked once more: the caller is to know within 2 s (design section 10).
func (s *Server) admitting(c *gin.Context, p auth.Principal, h handler) (any, error) {
	admission := s.Limits.Admission(p)
	ctx := auth.WithAdmission(c.Request.Context(), admission)
	c.Request = c.Request.WithContext(ctx)
	c.Set(keyPrincipal, p)
	value, err := h(c)
	if admission.Pending() && !errors.Is(err, auth.ErrInvalidToken) && !errors.Is(err, conversation.ErrUnavailable) {
		if refused := s.Keys.Admit(ctx); refused != nil {
			value, err = nil, refused
		}
	}
	if errors.Is(err, auth.ErrInvalidToken) {
		return nil, s.unauthenticated(c, err)
	}
	s.showStanding(c)
	return value, err
}

// showStanding shows on the response how the limits of the request's owner stand, or those of its address where that is
// not known because the store failed.
func (s *Server) showStanding(c *gin.Context) {
	decision, ok := auth.AdmissionOf(c.Request.Context()).Decision()
	if !ok {
		decision = s.Limits.FailureStatus(address(c.Request))
	}
	showFigures(c.Writer.Header(), decision)
}

// unauthenticated is the error of a request without a valid key: 401, or 429 for an address that has had too many.
// Another error of the verification is returned as it is.
func (s *Server) unauthenticated(c *gin.Context, err error) error {
	if !errors.Is(err, auth.ErrInvalidToken) {
		showFigures(c.Writer.Header(), s.Limits.FailureStatus(address(c.Request)))
		return err
	}
	decision := s.Limits.RecordFailure(address(c.Request))
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
