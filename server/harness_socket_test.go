package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// socket is a client's WebSocket connection with the subprotocol parley.v1.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
	log  frameLog
}

// dial opens a socket with the admin key and reads the welcome frame.
func (p *parley) dial() *socket {
	p.t.Helper()
	s, err := p.tryDial(p.url, websocket.DialOptions{})
	for late := time.Now().Add(testTimeout); isUnavailable(err) && time.Now().Before(late); <-time.After(50 * time.Millisecond) {
		s, err = p.tryDial(p.url, websocket.DialOptions{}) // on a busy machine, Redis may respond too late
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.conn.CloseNow() })
	s.next("welcome")
	return s
}

// isUnavailable reports whether err is the refusal of a handshake with 503.
func isUnavailable(err error) bool {
	refused := new(refusal)
	return errors.As(err, &refused) && refused.StatusCode == http.StatusServiceUnavailable
}

// tryDial opens a socket to url, the address of the server or of a proxy. It sends the admin key unless options set headers. If
// the server refuses the handshake, the error is a *refusal.
func (p *parley) tryDial(url string, options websocket.DialOptions) (*socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if options.HTTPHeader == nil {
		options.HTTPHeader = http.Header{"Authorization": {"Bearer " + adminKey}}
	}
	if options.Subprotocols == nil {
		options.Subprotocols = []string{"parley.v1"}
	}
	options.HTTPClient = &http.Client{Transport: documented{p.t, &http.Transport{DialContext: p.dialNet, DisableKeepAlives: true}}}
	path, query, _ := strings.Cut(url, "?")
	conn, response, err := websocket.Dial(ctx, strings.Replace(path, "http", "ws", 1)+"/v1/stream?"+query, &options)
	if err != nil {
		if response != nil {
			return nil, &refusal{response}
		}
		return nil, err
	}
	if conn.Subprotocol() != "parley.v1" {
		return nil, fmt.Errorf("the subprotocol is %q", conn.Subprotocol())
	}
	conn.SetReadLimit(8 << 20)
	return &socket{t: p.t, conn: conn}, nil
}

// refusal is the error of a handshake that the server refused. It holds the server's response.
type refusal struct{ *http.Response }

func (r *refusal) Error() string { return r.Status }

// send sends v as JSON in a text frame.
func (s *socket) send(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.text(string(body))
}

// text sends a text frame with this body.
func (s *socket) text(body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	s.log.write([]byte(body))
	return s.conn.Write(ctx, websocket.MessageText, []byte(body))
}

// read returns the next frame, or an error if none arrives within testTimeout.
func (s *socket) read() (frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	_, body, err := s.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	s.log.read(s.t, body)
	f := frame{raw: string(body)}
	if err := json.Unmarshal(body, &f); err != nil {
		return frame{}, fmt.Errorf("%w in %s", err, body)
	}
	if f.Error != nil {
		var e struct {
			Code, Field string
		}
		_ = json.Unmarshal(f.Error, &e)
		f.code, f.field = e.Code, e.Field
	}
	return f, nil
}

// next returns the next frame. A frame of another type ends the test.
func (s *socket) next(kind string) frame {
	s.t.Helper()
	f, err := s.read()
	if err != nil {
		s.t.Fatalf("waiting for %s: %v", kind, err)
	}
	if f.Type != kind {
		s.t.Fatalf("got %+v, want %s", f, kind)
	}
	return f
}

// any returns the next frame, of any type. An error ends the test.
func (s *socket) any() frame {
	s.t.Helper()
	f, err := s.read()
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// subscribe sends a subscribe frame and returns the server's response to it. It discards earlier frames. after is a cursor, or ""
// for none.
func (s *socket) subscribe(session, after string) (frame, error) {
	request := map[string]any{"type": "subscribe", "id": "sub", "sessionId": session}
	if after != "" {
		request["after"] = after
	}
	if err := s.send(request); err != nil {
		return frame{}, err
	}
	for {
		f, err := s.read()
		if err != nil || f.ReplyTo == "sub" {
			return f, err
		}
	}
}

// mustSubscribe calls subscribe. An error or a refusal ends the test.
func (s *socket) mustSubscribe(session, after string) frame {
	s.t.Helper()
	f, err := s.subscribe(session, after)
	if err != nil || f.Type != "subscribed" {
		s.t.Fatalf("%+v, %v", f, err)
	}
	return f
}

// must sends v as JSON in a text frame. An error ends the test.
func (s *socket) must(v any) {
	s.t.Helper()
	if err := s.send(v); err != nil {
		s.t.Fatal(err)
	}
}

// closed reads until the connection ends. It returns the close code, or -1 if the connection ended without a close frame.
func (s *socket) closed() int {
	s.t.Helper()
	for {
		if _, err := s.read(); err != nil {
			return int(websocket.CloseStatus(err))
		}
	}
}
