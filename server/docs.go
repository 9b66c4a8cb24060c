package server

import (
	"github.com/gin-gonic/gin"

	"parley/server/docs"
)

// mountDocs mounts the API reference, the guides, openapi.yaml and asyncapi.yaml.
func (s *Server) mountDocs() {
	pages := docs.New()
	for _, route := range []string{"/docs", "/docs/guides/:guide", "/openapi.yaml", "/asyncapi.yaml"} {
		s.engine.GET(route, s.handle(func(c *gin.Context) (any, error) {
			page, err := pages.Find(c.Request.URL.Path)
			switch {
			case err != nil:
				return nil, err
			case page == nil: // there is no such guide
				s.noRoute(c)
			default:
				page.ServeHTTP(c.Writer, c.Request)
			}
			return nil, nil
		}))
	}
}
