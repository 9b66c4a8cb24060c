package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/stream"
	"parley/stream/wire"
)

// sendMessage is POST /v1/sessions/{sessionId}/messages (spec: Send Message): it answers with the reply when that has
// ended, or with streaming, when its turn has begun.
func (s *Server) sendMessage(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	var body struct {
		Content   *string         `json:"content"`
		Role      *string         `json:"role"`
		Streaming *bool           `json:"streaming"`
		Metadata  json.RawMessage `json:"metadata"`
		OnBusy    *string         `json:"onBusy"`
	}
	if err := decodeBody(c, &body); err != nil {
		return nil, err
	}
	message, err := newMessage(id, body.Content, body.Role, body.OnBusy, body.Metadata)
	if err != nil {
		return nil, err
	}
	if message.Idempotency, err = sendIdempotency(headerIdempotencyKey, headerKey(c), message); err != nil {
		return nil, err
	}
	exchange, err := s.send(c, message)
	if err != nil {
		return nil, err
	}
	said := func(value any, err error) (any, error) {
		if exchange.Replayed {
			c.Header(headerReplayed, "true")
		}
		return value, err
	}
	if body.Streaming != nil && *body.Streaming {
		return said(s.streaming(c, exchange), nil)
	}
	// Also for a caller who has closed its side of the connection, which looks like one who has gone: it may still read.
	reply, err := exchange.Wait(context.WithoutCancel(c.Request.Context()))
	if err != nil {
		return nil, err // what there is to be said again is not known
	}
	if reply.Status == stream.Failed {
		return said(nil, failed(reply))
	}
	return said(reply, nil)
}

// previewContext is POST /v1/sessions/{sessionId}/context (design section 2): what a send would be answered from.
func (s *Server) previewContext(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	var body struct {
		Content *string `json:"content"`
		Role    *string `json:"role"`
	}
	if err := decodeBody(c, &body); err != nil {
		return nil, err
	}
	m, err := newMessage(id, body.Content, body.Role, nil, nil)
	if err != nil {
		return nil, err
	}
	preview, err := s.Conversation.Preview(c.Request.Context(), owner(principal(c)), id, m.Role, m.Content)
	if err != nil {
		return nil, err
	}
	return preview, nil
}

// sendIdempotency is idempotency for a send: it is the same one over REST and the socket, streaming or not, and
// however it meets a busy session.
func sendIdempotency(name string, key *string, m conversation.NewMessage) (*conversation.Idempotency, error) {
	m.OnBusy, m.Idempotency = "", nil
	return idempotency(name, key, m)
}

// send sends a message and returns when its turn has begun.
func (s *Server) send(c *gin.Context, m conversation.NewMessage) (*turn.Sent, error) {
	return s.Conversation.Send(c.Request.Context(), owner(principal(c)), m)
}

// streamingReply is a reply that has begun, and where to watch it.
type streamingReply struct {
	conversation.Message
	Stream watch `json:"stream"`
}

type watch struct {
	URL             string             `json:"url"`
	Cursor          string             `json:"cursor"`
	Ticket          string             `json:"ticket,omitempty"`
	TicketExpiresAt *conversation.Time `json:"ticketExpiresAt,omitempty"`
}

func (s *Server) streaming(c *gin.Context, x *turn.Sent) streamingReply {
	session := x.Reply.SessionID
	w := watch{URL: socketURL(c), Cursor: wire.Cursor(session, x.Position)}
	if p := principal(c); p.Has(auth.ReadMessages) {
		var expires time.Time
		p.SessionID = session
		w.Ticket, expires = s.Tickets.Issue(c.Request.Context(), p)
		at := conversation.TimeOf(expires)
		w.TicketExpiresAt = &at
	}
	return streamingReply{Message: x.Reply, Stream: w}
}

// socketURL returns the address of the socket as the caller reaches this server.
func socketURL(c *gin.Context) string {
	scheme := "ws://"
	if c.Request.TLS != nil || c.GetHeader("X-Forwarded-Proto") == "https" {
		scheme = "wss://"
	}
	return scheme + c.Request.Host + "/v1/stream"
}

// history is GET /v1/sessions/{sessionId}/messages (spec: Get Message History).
func (s *Server) history(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	query := conversation.MessageQuery{}
	if query.Limit, err = queryLimit(c, defaultMessages, maxMessages); err != nil {
		return nil, err
	}
	if query.From, err = queryID(c, "cursor", conversation.MessagePrefix); err != nil {
		return nil, err
	}
	switch order := c.DefaultQuery("order", "desc"); order {
	case "asc":
		query.Ascending = true
	case "desc":
	default:
		return nil, invalid("order", "must be asc or desc")
	}
	found, position, err := s.Conversation.History(c.Request.Context(), owner(principal(c)), id, query)
	if err != nil {
		return nil, err
	}
	p := page{Data: found.Messages}
	if n := len(found.Messages); n > 0 {
		p.Pagination = paginate(found.More, found.Messages[n-1].ID)
	} else {
		p.Data = []conversation.Message{}
	}
	if position != nil {
		p.Stream = &resume{Cursor: wire.Cursor(id, *position)}
	}
	return p, nil
}

// clearMessages is DELETE /v1/sessions/{sessionId}/messages.
func (s *Server) clearMessages(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	n, err := s.Conversation.Clear(c.Request.Context(), owner(principal(c)), id)
	if err != nil {
		return nil, err
	}
	return gin.H{"cleared": n, "sessionId": id}, nil
}

// getMessage is GET /v1/sessions/{sessionId}/messages/{messageId}.
func (s *Server) getMessage(c *gin.Context) (any, error) {
	session, message, err := messageID(c)
	if err != nil {
		return nil, err
	}
	m, position, err := s.Conversation.Message(c.Request.Context(), owner(principal(c)), session, message)
	if err != nil {
		return nil, err
	}
	return struct {
		conversation.Message
		Stream resume `json:"stream"`
	}{m, resume{Cursor: wire.Cursor(session, position)}}, nil
}

// cancelMessage is POST /v1/sessions/{sessionId}/messages/{messageId}/cancel.
func (s *Server) cancelMessage(c *gin.Context) (any, error) {
	session, message, err := messageID(c)
	if err != nil {
		return nil, err
	}
	if err := decodeBody(c, &struct{}{}); err != nil {
		return nil, err
	}
	return s.Conversation.Cancel(c.Request.Context(), owner(principal(c)), session, message)
}

// issueTicket is POST /v1/stream/tickets (design section 4).
func (s *Server) issueTicket(c *gin.Context) (any, error) {
	var body struct {
		SessionID *string `json:"sessionId"`
	}
	if err := decodeBody(c, &body); err != nil {
		return nil, err
	}
	p := principal(c)
	if body.SessionID != nil {
		if !conversation.ValidID(conversation.SessionPrefix, *body.SessionID) {
			return nil, invalid("sessionId", "must be session_ and 16 characters of [0-9A-Za-z]")
		}
		if _, _, err := s.Conversation.Session(c.Request.Context(), owner(p), *body.SessionID); err != nil {
			return nil, err
		}
		p.SessionID = *body.SessionID
	}
	ticket, expires := s.Tickets.Issue(c.Request.Context(), p)
	return gin.H{"ticket": ticket, "expiresAt": conversation.TimeOf(expires)}, nil
}
