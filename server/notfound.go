package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"parley/server/api"
)

// Page serves the files outside the API: the web page.
type Page interface {
	http.Handler
	Has(path string) bool // reports whether there is a file at path
}

// notFoundPage is the body of a 404 for browsers. It contains nothing from the request, so a link cannot inject HTML.
const notFoundPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Parley: not found</title></head>
<body><h1>There is nothing here.</h1><p><a href="/">The page</a> · <a href="/docs">Documentation</a></p></body></html>
`

// noRoute handles a request that matches no route. It serves a file of the web page if the path names one, and otherwise a
// 404.
func (s *Server) noRoute(c *gin.Context) {
	path := c.Request.URL.Path
	found := s.Page != nil && !underV1(path) && !hasEncodedSlash(c.Request.URL) && s.Page.Has(path)
	read := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
	switch {
	case found && read:
		c.Status(http.StatusOK) // gin has set the status to 404
		s.Page.ServeHTTP(c.Writer, c.Request)
	case found:
		c.Header("Allow", "GET, HEAD")
		s.noMethod(c)
	case underV1(path):
		s.handle(s.reject(api.ErrNotFound))(c)
	case read && strings.Contains(c.GetHeader("Accept"), "text/html"):
		c.Header("Vary", "Accept")
		c.Header("Cache-Control", "no-store")
		c.Data(http.StatusNotFound, "text/html; charset=utf-8", []byte(notFoundPage))
	default:
		c.Header("Vary", "Accept")
		s.handle(s.reject(api.ErrNotFound))(c)
	}
}

func underV1(path string) bool { return path == "/v1" || strings.HasPrefix(path, "/v1/") }

// reject responds with err to a request that no endpoint serves. Under /v1, the request counts against the limits of the key's
// account if the key is valid, and against the limit of the caller's address if the key is invalid.
func (s *Server) reject(err error) handler {
	return func(c *gin.Context) (any, error) {
		if !underV1(c.Request.URL.Path) {
			return nil, err
		}
		if !hasCredentials(c.Request.Header) {
			s.setAddressLimits(c)
			return nil, err
		}
		p, unknown := s.verify(c)
		if unknown != nil {
			return nil, s.unauthenticated(c, unknown)
		}
		return s.admit(c, p, func(*gin.Context) (any, error) { return nil, err })
	}
}

func (s *Server) noMethod(c *gin.Context) {
	s.handle(s.reject(&api.Error{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "This route does not have this method. The Allow header lists those it has.",
		Allow: c.Writer.Header().Get("Allow"),
	}))(c)
}
