package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
)

// single are the headers that a request has once at most (design section 2, validation): of two, a proxy may have read
// the one and we the other. Authorization and Origin are refused in errors of their own, in verify and originAllowed.
var single = []string{
	"Content-Type", "Content-Encoding", headerIdempotencyKey, headerLastEventID, "Sec-WebSocket-Version", "Sec-WebSocket-Key",
}

// strict lets a request through to h whose query has just the parameters of the route, each once at most, and whose
// headers are not ambiguous. Every route under /v1 is behind it.
func (s *Server) strict(query []string, h handler) handler {
	return func(c *gin.Context) (any, error) {
		if err := checkQuery(c.Request.URL.RawQuery, query); err != nil {
			return nil, err
		}
		for _, name := range single {
			if len(c.Request.Header.Values(name)) > 1 {
				return nil, invalid(name, "must be sent once")
			}
		}
		return h(c)
	}
}

// checkQuery checks that a query is well-formed and holds no other parameters than these, each once at most. The values of a
// query may be secret: the errors name parameters only.
func checkQuery(raw string, known []string) error {
	if raw == "" {
		return nil
	}
	parameters, err := url.ParseQuery(raw)
	if err != nil {
		return invalid("query", "is malformed")
	}
	names := make([]string, 0, len(parameters))
	for name := range parameters {
		names = append(names, name)
	}
	slices.Sort(names) // the same error each time
	for _, name := range names {
		switch {
		case !slices.Contains(known, name):
			return invalid(shown(name), "is not a known query parameter")
		case len(parameters[name]) > 1:
			return invalid(name, "must be given once")
		}
	}
	return nil
}

// shown returns the name of a parameter that a client made up, as an error may repeat it: "query" where it is none that
// could be read.
func shown(name string) string {
	const longest = 64
	if name == "" || len(name) > longest || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return "query"
	}
	return name
}

// hasEncodedSlash reports whether a path has a slash that is written as %2F: it is a part of a name, not a separator.
func hasEncodedSlash(u *url.URL) bool { return strings.Contains(strings.ToLower(u.RawPath), "%2f") }

// bearer returns the key in the Authorization header, "" where there is none, or more than one.
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

// authorises reports whether a request brings a key, whatever it is worth.
func authorises(h http.Header) bool { return strings.Join(h.Values("Authorization"), "") != "" }
