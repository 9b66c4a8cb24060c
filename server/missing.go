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
	there := s.Page != nil && !underV1(path) && !hasEncodedSlash(c.Request.URL) && s.Page.Has(path)
	read := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
	switch {
	case there && read:
		c.Status(http.StatusOK) // gin's NoRoute begins with 404
		s.Page.ServeHTTP(c.Writer, c.Request)
	case there:
		c.Header("Allow", "GET, HEAD")
		s.noMethod(c)
	case underV1(path):
		s.answer(s.passBy(errNotFound))(c)
	case read && strings.Contains(c.GetHeader("Accept"), "text/html"):
		c.Header("Vary", "Accept")
		c.Header("Cache-Control", "no-store")
		c.Data(http.StatusNotFound, "text/html; charset=utf-8", []byte(notFoundPage))
	default:
		c.Header("Vary", "Accept")
		s.answer(s.passBy(errNotFound))(c)
	}
}

func underV1(path string) bool { return path == "/v1" || strings.HasPrefix(path, "/v1/") }

// passBy answers a request to what is no endpoint with an error. Under /v1 it counts for a key that is valid, and needs none.
func (s *Server) passBy(err error) handler {
	return func(c *gin.Context) (any, error) {
		if !underV1(c.Request.URL.Path) {
			return nil, err
		}
		if !authorises(c.Request.Header) {
			showFigures(c.Writer.Header(), s.Limits.FailureStatus(address(c.Request)))
			return nil, err
		}
		p, invalid := s.verify(c)
		if invalid != nil {
			return nil, s.unauthenticated(c, invalid)
		}
		return s.admitting(c, p, func(*gin.Context) (any, error) { return nil, err })
	}
}

func (s *Server) noMethod(c *gin.Context) {
	s.answer(s.passBy(&apiError{
		status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: "The route does not have this method.",
		allow: c.Writer.Header().Get("Allow"),
	}))(c)
}
