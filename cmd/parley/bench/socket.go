package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"parley/stream/wire"
)

// socket is a WebSocket of parley.v1. It decodes as little as possible, so that the load generator needs less CPU than the
// server. Only one goroutine may use a socket, except for drop.
type socket struct {
	ws     *websocket.Conn
	buffer bytes.Buffer
	unbind func() bool // from now on, the context of dial does not break the socket
}

const (
	// dialTimeout is the timeout for opening a socket. The server limits a handshake to 10 s.
	dialTimeout = 15 * time.Second
	// maxFrame is the maximum size of a frame: a terminal frame has the whole reply, of up to 16 MiB, in JSON.
	maxFrame = 64 << 20
)

// dial opens a socket and reads the welcome frame. When ctx ends, the socket breaks.
func (c *client) dial(ctx context.Context) (*socket, error) {
	limit, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, response, err := websocket.Dial(limit, c.target.URL+"/v1/stream", &websocket.DialOptions{
		HTTPClient: c.http, Subprotocols: []string{wire.Protocol},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + c.target.Key}},
	})
	if err != nil && response != nil && response.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(response.Body)
		return nil, newRefusal("GET /v1/stream", response.StatusCode, text)
	}
	if err != nil {
		return nil, c.explain(err)
	}
	ws.SetReadLimit(maxFrame)
	s := &socket{ws: ws}
	s.unbind = context.AfterFunc(ctx, func() { _ = ws.CloseNow() })
	late := context.AfterFunc(limit, func() { _ = ws.CloseNow() })
	if _, err := s.await("welcome"); err != nil {
		s.drop()
		return nil, err
	}
	late()
	return s, nil
}

// close closes the socket with a close frame, and waits for the close frame of the server.
func (s *socket) close() {
	s.unbind()
	_ = s.ws.Close(websocket.StatusNormalClosure, "")
}

// drop closes the socket without a close frame. It may be called from any goroutine.
func (s *socket) drop() {
	s.unbind()
	_ = s.ws.CloseNow()
}

// write sends a request.
func (s *socket) write(request map[string]string) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return s.ws.Write(context.Background(), websocket.MessageText, text)
}

// read reads a frame. It is valid until the next call.
func (s *socket) read() ([]byte, error) {
	// The background context costs no goroutine. When a run ends, drop makes the read fail.
	_, reader, err := s.ws.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	s.buffer.Reset()
	if _, err := s.buffer.ReadFrom(reader); err != nil {
		return nil, err
	}
	return s.buffer.Bytes(), nil
}

// await reads frames until one has the type kind. An error frame is a *refusal.
func (s *socket) await(kind string) ([]byte, error) {
	for {
		frame, err := s.read()
		if err != nil {
			return nil, fmt.Errorf("waiting for a %s frame: %w", kind, err)
		}
		switch {
		case isType(frame, kind):
			return frame, nil
		case isType(frame, "error"):
			return nil, newRefusal("a frame on the WebSocket", 0, frame)
		}
	}
}

// isType reports whether a frame has a type. Servers write the type first.
func isType(frame []byte, kind string) bool {
	rest, ok := bytes.CutPrefix(frame, []byte(`{"type":"`))
	return ok && bytes.HasPrefix(rest, []byte(kind+`"`))
}

// subscribe subscribes to a session.
func (s *socket) subscribe(session string) error {
	if err := s.write(map[string]string{"type": wire.TypeSubscribe, "id": "1", "sessionId": session}); err != nil {
		return err
	}
	_, err := s.await("subscribed")
	return err
}

// ending is the end of a reply, from its terminal frame.
type ending struct {
	status string
	tokens int // of the reply
}

// errText means that the pieces of a reply do not add up to its final text.
var errText = errors.New("the deltas differ from the text of the final message")

// follow reads a reply to its end. It calls piece for each delta with the length of its text in bytes.
func (s *socket) follow(piece func(bytes int)) (ending, error) {
	got := 0
	for {
		frame, err := s.read()
		switch {
		case err != nil:
			return ending{}, fmt.Errorf("reading a reply: %w", err)
		case isType(frame, "message.delta"):
			n := deltaLength(frame)
			got += n
			piece(n)
		case isType(frame, "error"):
			return ending{}, newRefusal("a frame on the WebSocket", 0, frame)
		case bytes.HasPrefix(frame, []byte(`{"type":"message.`)) && !isType(frame, "message.created"):
			return parseEnding(frame, got)
		case isType(frame, "draining"):
			return ending{}, errors.New("the server is shutting down")
		}
	}
}

// parseEnding reads a terminal frame. got is the length of the text that arrived before it.
func parseEnding(frame []byte, got int) (ending, error) {
	var end struct {
		Message struct {
			Status  string
			Content *string
			Usage   struct{ Completion int }
		}
	}
	if err := json.Unmarshal(frame, &end); err != nil {
		return ending{}, fmt.Errorf("a terminal frame: %w", err)
	}
	if end.Message.Content != nil && len(*end.Message.Content) != got { // nil from a pipe, which does not keep the text
		return ending{}, errText
	}
	return ending{end.Message.Status, end.Message.Usage.Completion}, nil
}

// deltaLength returns the length of a delta's text in bytes.
func deltaLength(frame []byte) int {
	const name = `"delta":"`
	start := bytes.Index(frame, []byte(name))
	if start < 0 {
		return 0
	}
	rest := frame[start+len(name):]
	end := bytes.IndexAny(rest, `"\`)
	if end >= 0 && rest[end] == '"' { // the usual case: the text has no escapes
		return end
	}
	var delta struct{ Delta string }
	_ = json.Unmarshal(frame, &delta)
	return len(delta.Delta)
}
