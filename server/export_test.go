package server

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Routes returns what a server has mounted.
func Routes(s *Server) gin.RoutesInfo { return s.engine.Routes() }

// CountedHandler is one route that does nothing, its requests counted.
func CountedHandler(m *Metrics) http.Handler {
	m.routes[route{"GET", "/v1/things/:id"}] = m.newRoute("GET", "/v1/things/:id")
	return things(m.count)
}

// UncountedHandler is the same without figures.
func UncountedHandler(*Metrics) http.Handler { return things(func(c *gin.Context) { c.Next() }) }

func things(middleware gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(middleware)
	e.GET("/v1/things/:id", func(*gin.Context) {})
	return e
}
