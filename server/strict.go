package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"parley/server/api"
)

// singleHeaders lists the headers that a request may have only once. Otherwise, a proxy could act on the first value and this
// server on the second. The functions bearer and socket.CheckHandshake refuse repeated Authorization and Origin headers.
var singleHeaders = canonical(
	"Content-Type", "Content-Encoding", headerIdempotencyKey, headerLastEventID, "Sec-WebSocket-Version", "Sec-WebSocket-Key",
)

// header is the name of a header: name as documents spell it, and key in the canonical form of http.Header.
type header struct{ name, key string }

func canonical(names ...string) (all []header) {
	for _, name := range names {
		all = append(all, header{name, http.CanonicalHeaderKey(name)})
	}
	return all
}

// strict calls h if the request passes two checks: the query has only parameters that the route accepts, each at most once,
// and no header of singleHeaders is repeated. Every route under /v1 uses strict.
func (s *Server) strict(query []string, h handler) handler {
	return func(c *gin.Context) (any, error) {
		if err := checkQuery(c.Request.URL.RawQuery, query); err != nil {
			return nil, err
		}
		for _, h := range singleHeaders {
			if len(c.Request.Header[h.key]) > 1 {
				return nil, api.Invalid(h.name, "must be sent once")
			}
		}
		return h(c)
	}
}

// checkQuery checks that a query is well-formed and has only known parameters, each at most once. Its errors name
// parameters but never repeat values, because a value may be a secret.
func checkQuery(raw string, known []string) error {
	if raw == "" {
		return nil
	}
	parameters, err := url.ParseQuery(raw)
	if err != nil {
		return api.Invalid("query", "is malformed: check its percent-encoding")
	}
	names := make([]string, 0, len(parameters))
	for name := range parameters {
		names = append(names, name)
	}
	slices.Sort(names) // the same query must always get the same error
	for _, name := range names {
		switch {
		case !slices.Contains(known, name):
			return api.Invalid(printable(name), "is not a known query parameter")
		case len(parameters[name]) > 1:
			return api.Invalid(name, "must be given once")
		}
	}
	return nil
}

// printable returns name if an error may show it: at most 64 bytes, valid UTF-8, no control characters. Otherwise it returns
// "query".
func printable(name string) string {
	const longest = 64
	if name == "" || len(name) > longest || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return "query"
	}
	return name
}

// hasEncodedSlash reports whether a path contains %2F: a slash that is part of a segment and not a separator.
func hasEncodedSlash(u *url.URL) bool { return strings.Contains(strings.ToLower(u.RawPath), "%2f") }
