package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/server/api"
	"parley/server/socket"
)

// keyPrincipal is the name under which a gin context stores the caller's auth.Principal.
const keyPrincipal = "parley.principal"

// authorised calls h if the request's key is valid and has the scope. It also counts the request: see admit.
func (s *Server) authorised(scope auth.Scope, h handler) handler {
	return func(c *gin.Context) (any, error) {
		p, err := s.verify(c)
		if err != nil {
			return nil, s.unauthenticated(c, err)
		}
		return s.admit(c, p, func(c *gin.Context) (any, error) {
			if err := api.RequireScope(p, scope); err != nil {
				return nil, err
			}
			return h(c)
		})
	}
}

// verify returns the principal of the key in the Authorization header. If the secret was rotated out, the response gets a
// Deprecation header (RFC 9745) with the time of the rotation. A rotated-out secret works for at most 24 hours after the
// rotation.
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

// bearer returns the secret in the Authorization header. It returns "" if the header is missing, is repeated, or has a scheme
// other than Bearer.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// hasCredentials reports whether a request has a non-empty Authorization header, valid or not.
func hasCredentials(h http.Header) bool { return strings.Join(h.Values("Authorization"), "") != "" }

// verifyHandshake returns the principal of a handshake. It verifies the key in the Authorization header or, without that
// header, the ticket.
func (s *Server) verifyHandshake(c *gin.Context, offers socket.Offers) (auth.Principal, error) {
	if hasCredentials(c.Request.Header) {
		return s.verify(c)
	}
	ticket, offered := offers.Ticket()
	if !offered {
		ticket = c.Query("ticket")
	}
	return s.Keys.RedeemTicket(c.Request.Context(), ticket)
}

// principal returns the principal of the request. It panics unless admit has stored the principal in c.
func principal(c *gin.Context) auth.Principal {
	return c.MustGet(keyPrincipal).(auth.Principal)
}

// admit calls h for a principal and counts the request once against the principal's limits.
//
// The first store operation of h admits the request in the same round trip (see [auth.Admission]). If h has called no store
// operation, for example because the body is invalid, admit admits the request after h. If a limit then refuses the request,
// the 429 replaces any other error. If the store has just failed, admit does not call the store again, because the caller must
// get its 503 within 2 s.
func (s *Server) admit(c *gin.Context, p auth.Principal, h handler) (any, error) {
	admission := s.Limits.Admission(p)
	ctx := auth.WithAdmission(c.Request.Context(), admission)
	c.Request = c.Request.WithContext(ctx)
	c.Set(keyPrincipal, p)
	countForNamed(c)
	value, err := h(c)
	if admission.Pending() && !errors.Is(err, auth.ErrInvalidToken) && !errors.Is(err, conversation.ErrUnavailable) {
		if refused := s.Keys.Admit(ctx); refused != nil {
			value, err = nil, refused
		}
	}
	if errors.Is(err, auth.ErrInvalidToken) {
		return nil, s.unauthenticated(c, err)
	}
	if !c.Writer.Written() { // a response that is written already has these headers
		s.setOwnerLimits(c)
	}
	return value, err
}

// unauthenticated handles an error of an authentication. If err is ErrInvalidToken, it records the refusal and counts a failure
// of the caller's address. It then returns err, which becomes a 401, or a 429 error if the address has failed too often. It
// returns any other error unchanged and counts nothing.
func (s *Server) unauthenticated(c *gin.Context, err error) error {
	if !errors.Is(err, auth.ErrInvalidToken) {
		s.setAddressLimits(c)
		return err
	}
	from := s.address(c.Request)
	credential, prefix := presented(c.Request)
	s.audit.authenticationRefused(from, credential, prefix)
	decision := s.Limits.RecordFailure(from)
	setLimitHeaders(c.Writer.Header(), decision)
	if !decision.Admitted() {
		return api.Limited(decision)
	}
	return err
}

// presented returns the kind of the credential in a request: "key", "ticket" or "none". prefix is the beginning of a generated
// key, by which people recognise the key; it is "" for any other text.
func presented(r *http.Request) (credential, prefix string) {
	_, offered := socket.ParseOffers(r.Header).Ticket()
	switch {
	case hasCredentials(r.Header):
		return "key", auth.ShownPrefix(bearer(r.Header))
	case offered || r.URL.Query().Has("ticket"):
		return "ticket", ""
	}
	return "none", ""
}
