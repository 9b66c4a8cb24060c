package server

import (
	"github.com/gin-gonic/gin"

	"parley/conversation"
	"parley/server/socket"
)

// openSocket is GET /v1/stream: the handshake of a WebSocket. It makes all checks before the upgrade. So a refused handshake
// gets the same error body as any other refused request.
func (s *Server) openSocket(c *gin.Context) (any, error) {
	offers := socket.ParseOffers(c.Request.Header)
	p, err := s.verifyHandshake(c, offers)
	if err != nil {
		return nil, s.unauthenticated(c, err)
	}
	return s.admit(c, p, func(c *gin.Context) (any, error) {
		if err := socket.CheckHandshake(c.Request, offers, s.Origins); err != nil {
			return nil, err
		}
		if s.draining.Load() {
			return nil, conversation.ErrDraining
		}
		closed, err := s.Keys.OpenSocket(c.Request.Context(), p.Owner())
		if err != nil {
			return nil, err
		}
		s.setOwnerLimits(c) // the 101 response needs the limit headers too
		s.sockets.Upgrade(c.Writer, c.Request, socket.Handshake{Principal: p, RequestID: c.GetString(keyRequestID), Closed: closed})
		return nil, nil
	})
}
