package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// Page is what is served outside the API.
type Page interface {
	http.Handler
	Has(path string) bool // whether there is something to serve, to GET and HEAD
}

// notFoundPage is what a browser is shown where nothing is. It repeats nothing of the request.
const notFoundPage = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Parley: not found</title></head>
<body><h1>There is nothing here.</h1><p><a href="/">The page</a> · <a href="/docs">The interface</a></p></body></html>
`

// noRoute serves the page's files, and says of all else that it is not there.
func (s *Server) noRoute(c *gin.Context) {
	path := c.Request.URL.Path
	switch read := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead; {
	case underV1(path):
		s.answer(s.nothing)(c)
	case s.Page != nil && !hasEncodedSlash(c.Request.URL) && s.Page.Has(path) && read:
		c.Status(http.StatusOK) // gin's NoRoute begins with 404
		s.Page.ServeHTTP(c.Writer, c.Request)
	case s.Page != nil && !hasEncodedSlash(c.Request.URL) && s.Page.Has(path):
		c.Header("Allow", "GET, HEAD")
		s.answer(s.noMethod)(c)
	case read && strings.Contains(c.GetHeader("Accept"), "text/html"):
		c.Header("Vary", "Accept")
		c.Header("Cache-Control", "no-store")
		c.Data(http.StatusNotFound, "text/html; charset=utf-8", []byte(notFoundPage))
	default:
		c.Header("Vary", "Accept")
		s.answer(s.nothing)(c)
	}
}

// nothing is the answer where no route is.
func (s *Server) nothing(c *gin.Context) (any, error) {
	if err := s.passBy(c); err != nil {
		return nil, err
	}
	return nil, errNotFound
}

func underV1(path string) bool { return path == "/v1" || strings.HasPrefix(path, "/v1/") }

// passBy admits a request to what is no endpoint of /v1: it counts for a key that is valid, and needs none.
func (s *Server) passBy(c *gin.Context) error {
	if !underV1(c.Request.URL.Path) {
		return nil
	}
	if !authorises(c.Request.Header) {
		showFigures(c.Writer.Header(), s.Limits.Standing(address(c.Request)))
		return nil
	}
	p, err := s.verify(c)
	if err != nil {
		return s.unauthenticated(c, err)
	}
	return s.admit(c, p)
}

func (s *Server) noMethod(c *gin.Context) (any, error) {
	if err := s.passBy(c); err != nil {
		return nil, err
	}
	return nil, &apiError{
		status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: "The route does not have this method.",
		allow: c.Writer.Header().Get("Allow"),
	}
}
