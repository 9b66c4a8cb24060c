package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"parley/conversation"
	"parley/server/api"
	"parley/server/socket"
	"parley/stream"
	"parley/stream/wire"
)

const (
	headerLastEventID = "Last-Event-ID"
	// commentInterval is the interval of comments on an event stream. It is shorter than the 30 to 60 s after which proxies
	// commonly close idle connections.
	commentInterval = 15 * time.Second
)

// eventFormat is an encoding of a reply as server-sent events.
type eventFormat struct {
	encoder stream.Encoder
	// first is the text before the first event; it may be "". The server flushes after this text, so that the client gets the
	// headers at once.
	first string
	// noCursor is set if events have no cursor. Each stream then shows the reply from its beginning.
	noCursor bool
	// header and value are the name and the value of an additional response header; header is "" for none.
	header, value string
}

// eventFormats holds the formats by the value of the query parameter "format". The key "" is the default.
var eventFormats = map[string]eventFormat{
	"":       {encoder: wire.SSE{}, first: ": parley.v1\n\n"},
	"ai-sdk": {encoder: wire.AISDK{}, noCursor: true, header: "x-vercel-ai-ui-message-stream", value: "v1"},
}

// queryFormat returns the format in the query, or the default if the query has none.
func queryFormat(c *gin.Context) (eventFormat, error) {
	name, named := c.GetQuery("format")
	format, known := eventFormats[name]
	if !known || named && name == "" {
		return format, api.Invalid("format", "must be ai-sdk or left out")
	}
	return format, nil
}

// streamMessage is GET /v1/sessions/{sessionId}/messages/{messageId}/stream: one reply as server-sent events. If the cursor
// lies after the end of the reply, or the message is not a reply, the response is 204. A 204 tells an EventSource not to
// reconnect.
func (s *Server) streamMessage(c *gin.Context) (any, error) {
	session, message, err := messageID(c)
	if err != nil {
		return nil, err
	}
	format, err := queryFormat(c)
	if err != nil {
		return nil, err
	}
	ctx := c.Request.Context()
	from := stream.Before(message)
	if !format.noCursor {
		if from, err = s.resumeAt(c, session, message); err != nil {
			return nil, err
		}
	}
	isReply, err := s.Conversation.IsReply(ctx, api.Owner(principal(c)), session, message)
	if err != nil {
		return nil, err
	}
	if !isReply || from.ID > message || from.ID == message && from.Ended {
		c.Header("Cache-Control", "no-store") // caches may store a 204 by default
		c.Status(http.StatusNoContent)
		return nil, nil
	}
	wake := make(chan struct{}, 1)
	viewer, _, _, err := s.Conversation.View(ctx, api.Owner(principal(c)), session, &from, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	defer viewer.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.revocation.Watch(principal(c), cancel)()
	s.setOwnerLimits(c)
	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	if format.header != "" {
		h.Set(format.header, format.value)
	}
	s.writeEvents(ctx, c, viewer, message, format, wake)
	return nil, nil
}

// resumeAt returns the position at which a stream starts: the position in Last-Event-ID. If the request has no such header, or
// the position lies before the reply, resumeAt returns the beginning of the reply.
func (s *Server) resumeAt(c *gin.Context, session, message string) (stream.Position, error) {
	from := stream.Before(message)
	last := c.GetHeader(headerLastEventID)
	if last == "" {
		return from, nil
	}
	position, err := wire.ParseCursor(session, last, api.ValidMessageID)
	if err == nil {
		err = s.Conversation.CheckPosition(c.Request.Context(), api.Owner(principal(c)), session, position)
	}
	switch {
	case errors.Is(err, wire.ErrBadCursor), errors.Is(err, conversation.ErrNoPosition):
		return from, api.Invalid(headerLastEventID, api.WrongCursor)
	case err != nil:
		return from, err
	case position.ID >= message:
		from = position
	}
	return from, nil
}

// writeEvents writes the events of one reply. It returns when the reply has ended, when a write fails, or when ctx is done.
// ctx is done when the caller has disconnected or the caller's key was revoked.
func (s *Server) writeEvents(ctx context.Context, c *gin.Context, viewer *stream.Viewer, message string, format eventFormat, wake <-chan struct{}) {
	control := http.NewResponseController(c.Writer)
	write := func(b []byte) bool {
		_, err := c.Writer.Write(b)
		return err == nil && control.Flush() == nil
	}
	idle := time.NewTicker(commentInterval)
	defer idle.Stop()
	if !write([]byte(format.first)) {
		return
	}
	for ctx.Err() == nil {
		event, ok, err := viewer.Next(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, conversation.ErrUnavailable):
			s.Log.Warn("event stream closed: history cannot be read", "requestId", c.GetString(keyRequestID), "error", err)
			return
		case !ok:
			var retry <-chan time.Time
			if err != nil { // the store is unreachable
				retry = time.After(socket.HistoryRetry)
			}
			select {
			case <-wake:
			case <-retry:
			case <-idle.C:
				if !write([]byte(":\n\n")) {
					return
				}
				continue
			case <-ctx.Done():
				return
			}
		case event.Entry != nil && event.Entry.ID != message:
			return // the event is about a later message, so this reply gets no more events
		default:
			frame := viewer.Topic().Encode(event, format.encoder)
			_, err := frame.WriteTo(c.Writer)
			frame.Release()
			if err != nil || control.Flush() != nil || socket.EndsReply(event.Kind) {
				return
			}
		}
	}
}
