package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"parley/conversation"
	"parley/stream"
	"parley/stream/wire"
)

const (
	headerLastEventID = "Last-Event-ID"
	noCursor          = "is no cursor of this session, or lies ahead of all that it ever had"
	// commentEvery is how often an idle event stream says that it is alive.
	commentEvery = 15 * time.Second
	// writeWait is how long one write to a viewer may take.
	writeWait = 30 * time.Second
	// historyAgain is when a viewer asks for history again while the store is out of reach.
	historyAgain = time.Second
)

// eventFormat is a way to write a reply down as server-sent events.
type eventFormat struct {
	encoder stream.Encoder
	// first is sent at once, and may be nothing.
	first string
	// whole says that the events have no cursor to come back with: each stream shows the reply from its beginning.
	whole bool
	// header is a header of the response, or "".
	header, value string
}

// eventFormats are the formats by the query's format; "" is that of a query that names none.
var eventFormats = map[string]eventFormat{
	"":       {encoder: wire.SSE{}, first: ": parley.v1\n\n"},
	"ai-sdk": {encoder: wire.AISDK{}, whole: true, header: "x-vercel-ai-ui-message-stream", value: "v1"},
}

// queryFormat returns the format that the query names.
func queryFormat(c *gin.Context) (eventFormat, error) {
	name, named := c.GetQuery("format")
	format, known := eventFormats[name]
	if !known || named && name == "" {
		return format, invalid("format", "must be ai-sdk, or left out")
	}
	return format, nil
}

// streamMessage is GET /v1/sessions/{sessionId}/messages/{messageId}/stream: one reply as server-sent events
// (design section 4). Past the end of the reply it answers 204, which stops an EventSource.
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
	if !format.whole {
		if from, err = s.resumeAt(c, session, message); err != nil {
			return nil, err
		}
	}
	m, _, err := s.Conversation.Message(ctx, owner(principal(c)), session, message)
	if err != nil {
		return nil, err
	}
	if m.Role != conversation.Assistant || from.ID > message || from.ID == message && from.Ended {
		c.Header("Cache-Control", "no-store") // it would be stored by default
		c.Status(http.StatusNoContent)
		return nil, nil
	}
	wake := make(chan struct{}, 1)
	viewer, _, _, err := s.Conversation.View(ctx, owner(principal(c)), session, &from, func() {
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
	defer s.watchman.watch(principal(c), cancel)()
	s.showStanding(c)
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

// resumeAt returns the position after which a reply is to be shown: its beginning, or where Last-Event-ID says.
func (s *Server) resumeAt(c *gin.Context, session, message string) (stream.Position, error) {
	from := stream.Before(message)
	last := c.GetHeader(headerLastEventID)
	if last == "" {
		return from, nil
	}
	position, err := wire.ParseCursor(session, last, validMessage)
	if err == nil {
		err = s.Conversation.CheckPosition(c.Request.Context(), owner(principal(c)), session, position)
	}
	switch {
	case errors.Is(err, wire.ErrBadCursor), errors.Is(err, conversation.ErrNoPosition):
		return from, invalid(headerLastEventID, noCursor)
	case err != nil:
		return from, err
	case position.ID >= message:
		from = position
	}
	return from, nil
}

func validMessage(id string) bool { return conversation.ValidID(conversation.MessagePrefix, id) }

// isLast reports whether the view of a reply ends with an event of that kind.
func isLast(kind stream.EventKind) bool {
	switch kind {
	case stream.Ended, stream.Cleared, stream.Deleted, stream.Expired:
		return true
	}
	return false
}

// writeEvents writes the events of one reply until it has ended, or ctx has: the caller has gone, or its key.
func (s *Server) writeEvents(ctx context.Context, c *gin.Context, viewer *stream.Viewer, message string, format eventFormat, wake <-chan struct{}) {
	control := http.NewResponseController(c.Writer)
	write := func(b []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeWait))
		_, err := c.Writer.Write(b)
		return err == nil && control.Flush() == nil
	}
	idle := time.NewTicker(commentEvery)
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
			s.Log.Warn("a view ended: history cannot be read", "requestId", c.GetString(keyRequestID), "error", err)
			return
		case !ok:
			var again <-chan time.Time
			if err != nil { // the store is out of reach
				again = time.After(historyAgain)
			}
			select {
			case <-wake:
			case <-again:
			case <-idle.C:
				if !write([]byte(":\n\n")) {
					return
				}
				continue
			case <-ctx.Done():
				return
			}
		case event.Entry != nil && event.Entry.ID != message:
			return // the reply's end was seen
		default:
			frame := viewer.Topic().Encode(event, format.encoder)
			sent := write(frame.Bytes)
			frame.Release()
			if !sent || isLast(event.Kind) {
				return
			}
		}
	}
}
