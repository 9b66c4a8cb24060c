package server

import "github.com/gin-gonic/gin"

// Routes returns what a server has mounted.
func Routes(s *Server) gin.RoutesInfo { return s.engine.Routes() }
