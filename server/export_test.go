package server

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Routes returns the routes of a server.
func Routes(s *Server) gin.RoutesInfo { return s.engine.Routes() }

// CountedHandler returns a handler with one route, which does nothing. m counts the requests.
func CountedHandler(m *Metrics) http.Handler {
	m.routes[route{"GET", "/v1/things/:id"}] = m.newRoute("GET", "/v1/things/:id")
	return things(m.count)
}

// UncountedHandler returns a handler with the same route. No metrics count the requests.
func UncountedHandler(*Metrics) http.Handler { return things(func(c *gin.Context) { c.Next() }) }

func things(middleware gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(middleware)
	e.GET("/v1/things/:id", func(*gin.Context) {})
	return e
}
