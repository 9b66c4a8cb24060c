package server

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/server/api"
	"parley/server/transport"
	"parley/stream"
	"parley/stream/wire"
)

// sendMessage is POST /v1/sessions/{sessionId}/messages. It responds when the reply has ended or, with streaming, when the
// turn has begun.
func (s *Server) sendMessage(c *gin.Context) (any, error) {
	id, err := sessionID(c)
	if err != nil {
		return nil, err
	}
	key := headerKey(c)
	slot, err := s.Conversation.TakeSlot(api.Owner(principal(c)), id, key) // before the body takes memory
	if err != nil {
		return nil, err
	}
	defer slot.Release()
	message, streaming, err := decodeSend(c, id, key)
	if err != nil {
		return nil, err
	}
	sending, waiting, release := s.whileKeyWorks(c)
	defer release()
	exchange, err := s.Conversation.Send(sending, slot, message)
	if err != nil {
		return nil, err
	}
	withReplayHeader := func(value any, err error) (any, error) {
		if exchange.Replayed {
			c.Header(headerReplayed, "true")
		}
		return value, err
	}
	if streaming {
		return withReplayHeader(s.streaming(c, exchange), nil)
	}
	reply, err := exchange.Wait(waiting)
	if err != nil && waiting.Err() != nil {
		err = context.Cause(waiting)
	}
	if err != nil {
		return nil, err // without headerReplayed, because the reply's final state is unknown
	}
	if reply.Status == stream.Failed {
		return withReplayHeader(nil, api.Failed(reply))
	}
	return withReplayHeader(reply, nil)
}

// decodeSend returns the message in the body of a send. streaming reports whether the caller wants the response when
// the turn has begun, not when it has ended.
func decodeSend(c *gin.Context, sessionID string, key *string) (m conversation.NewMessage, streaming bool, err error) {
	var body struct {
		Content   *string         `json:"content"`
		Role      *string         `json:"role"`
		Streaming *bool           `json:"streaming"`
		Metadata  json.RawMessage `json:"metadata"`
		OnBusy    *string         `json:"onBusy"`
	}
	if err := decodeBody(c, &body); err != nil {
		return m, false, err
	}
	m, err = api.CheckMessage(sessionID, api.MessageRequest{Content: body.Content, Role: body.Role, OnBusy: body.OnBusy, Metadata: body.Metadata})
	if err != nil {
		return m, false, err
	}
	m.Idempotency, err = api.SendIdempotency(headerIdempotencyKey, key, m)
	return m, body.Streaming != nil && *body.Streaming, err
}

// previewContext is POST /v1/sessions/{sessionId}/context, a dry run. It returns the messages that the window would consider
// for the prompt. Each has its decision: kept, folded, dropped or skipped.
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
	m, err := api.CheckMessage(id, api.MessageRequest{Content: body.Content, Role: body.Role})
	if err != nil {
		return nil, err
	}
	// A preview counts as a page only when the body has been read, so that a slow client keeps no other request waiting.
	return s.page(func(c *gin.Context) (any, error) {
		preview, err := s.Conversation.Preview(c.Request.Context(), api.Owner(principal(c)), id, m.Role, m.Content)
		if err != nil {
			return nil, err
		}
		return preview, nil
	})(c)
}

// whileKeyWorks returns two contexts for a send. Both end within a second after the caller's key stopped working, with the
// cause auth.ErrInvalidToken. So the send leaves the queue of its session, and the caller gets a 401. sending also ends when
// the caller closes its sending side. waiting does not, because the caller may still read the response.
func (s *Server) whileKeyWorks(c *gin.Context) (sending, waiting context.Context, release func()) {
	ctx := c.Request.Context()
	sending, endSending := context.WithCancelCause(ctx)
	waiting, endWaiting := context.WithCancelCause(context.WithoutCancel(ctx))
	end := func(cause error) { endSending(cause); endWaiting(cause) }
	unwatch := s.revocation.Watch(principal(c), func() { end(auth.ErrInvalidToken) })
	return sending, waiting, func() { unwatch(); end(nil) }
}

// streamingReply is a live reply, with the data that a client needs to subscribe to the reply.
type streamingReply struct {
	conversation.Message
	Stream subscribeInfo `json:"stream"`
}

type subscribeInfo struct {
	URL             string             `json:"url"`
	Cursor          string             `json:"cursor"`
	Ticket          string             `json:"ticket,omitempty"`
	TicketExpiresAt *conversation.Time `json:"ticketExpiresAt,omitempty"`
}

func (s *Server) streaming(c *gin.Context, x *turn.Sent) streamingReply {
	session := x.Reply.SessionID
	info := subscribeInfo{URL: s.socketURL(c), Cursor: wire.Cursor(session, x.Position)}
	if p := principal(c); p.Has(auth.ReadMessages) {
		p.SessionID = session
		// Without the cancellation, because the caller may have closed its sending side and still read the response.
		ticket, expires, err := s.Keys.IssueTicket(context.WithoutCancel(c.Request.Context()), p)
		if err != nil { // the turn has begun, so the caller needs the response; it can create a ticket later
			s.Log.Warn("the response to a send has no ticket", "requestId", c.GetString(keyRequestID), "error", err)
			return streamingReply{Message: x.Reply, Stream: info}
		}
		at := conversation.TimeOf(expires)
		info.Ticket, info.TicketExpiresAt = ticket, &at
	}
	return streamingReply{Message: x.Reply, Stream: info}
}

// socketURL returns the URL of GET /v1/stream. Without a configured public URL, it has the host and the scheme of the caller's
// request.
func (s *Server) socketURL(c *gin.Context) string {
	base := s.PublicURL
	if base == "" {
		base = "http://" + c.Request.Host
		if transport.OverTLS(c.Request) {
			base = "https://" + c.Request.Host
		}
	}
	return "ws" + strings.TrimPrefix(base, "http") + "/v1/stream"
}

// history is GET /v1/sessions/{sessionId}/messages.
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
		return nil, api.Invalid("order", "must be asc or desc")
	}
	found, position, err := s.Conversation.History(c.Request.Context(), api.Owner(principal(c)), id, query)
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
	n, err := s.Conversation.Clear(c.Request.Context(), api.Owner(principal(c)), id)
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
	m, position, err := s.Conversation.Message(c.Request.Context(), api.Owner(principal(c)), session, message)
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
	return s.Conversation.Cancel(c.Request.Context(), api.Owner(principal(c)), session, message)
}

// issueTicket is POST /v1/stream/tickets. A ticket opens one socket within 30 s. Browsers need tickets because they cannot set
// an Authorization header on a WebSocket, and a key must not be in a URL.
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
			return nil, api.Invalid("sessionId", mustBeID(conversation.SessionPrefix))
		}
		countFor(c, *body.SessionID)
		if _, _, err := s.Conversation.Session(c.Request.Context(), api.Owner(p), *body.SessionID); err != nil {
			return nil, err
		}
		p.SessionID = *body.SessionID
	}
	ticket, expires, err := s.Keys.IssueTicket(c.Request.Context(), p)
	if err != nil {
		return nil, err
	}
	return gin.H{"ticket": ticket, "expiresAt": conversation.TimeOf(expires)}, nil
}
