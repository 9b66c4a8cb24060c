package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"parley/auth"
	"parley/conversation"
	"parley/server"
	"parley/store"
	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const adminKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// parley is a whole server on the embedded store, with a model of the test's own, on a loopback address.
type parley struct {
	t       testing.TB
	service *conversation.Service
	handler *server.Server
	http    *httptest.Server
	url     string
}

type option func(*server.Options, *conversation.Options)

// start runs a server until the test ends.
func start(t testing.TB, model stream.Model, options ...option) *parley {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	backend, err := store.Open(context.Background(), "file:"+filepath.Join(t.TempDir(), "parley.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	inner := conversation.Options{
		Store: backend.Conversation, Model: model, Count: func(s string) int { return (len(s) + 3) / 4 }, Log: log,
		Patience: stream.Patience{FirstByte: 20 * time.Second, Stall: 20 * time.Second},
	}
	outer := server.Options{
		Keys: auth.NewKeys(backend.Keys, adminKey), Tickets: auth.NewTickets(), Ready: backend.Ping, Log: log,
	}
	for _, o := range options {
		o(&outer, &inner)
	}
	p := &parley{t: t, service: conversation.NewService(inner)}
	if err := p.service.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	outer.Conversation = p.service
	p.handler = server.New(outer)
	p.http = httptest.NewServer(p.handler)
	p.url = p.http.URL
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.handler.BeginDrain()
		p.service.Drain(now)
		p.http.CloseClientConnections()
		p.handler.DrainSockets(now)
		p.http.Close()
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// call makes a request and returns the status and the decoded body.
func (p *parley) call(method, path string, body any, headers ...string) (int, map[string]any) {
	p.t.Helper()
	status, _, answer := p.callWith(method, path, body, headers...)
	return status, answer
}

func (p *parley) callWith(method, path string, body any, headers ...string) (int, http.Header, map[string]any) {
	p.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			p.t.Fatal(err)
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, p.url+path, reader)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminKey)
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Del(headers[i])
		if headers[i+1] != "" {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	var answer map[string]any
	if len(raw) > 0 && strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(raw, &answer); err != nil {
			p.t.Fatalf("%s %s: %v in %s", method, path, err, raw)
		}
	}
	return response.StatusCode, response.Header, answer
}

// must is call for what has to succeed.
func (p *parley) must(method, path string, body any) map[string]any {
	p.t.Helper()
	status, answer := p.call(method, path, body)
	if status != http.StatusOK {
		p.t.Fatalf("%s %s: %d %v", method, path, status, answer)
	}
	return answer
}

// session makes a session and returns its id.
func (p *parley) session() string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
}

// begin sends a message with streaming, and returns the answer.
func (p *parley) begin(session, content string) map[string]any {
	p.t.Helper()
	return p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": content, "streaming": true})
}

// code returns the code of an error body.
func code(answer map[string]any) string {
	e, _ := answer["error"].(map[string]any)
	c, _ := e["code"].(string)
	return c
}

// frame is a frame of the server's.
type frame struct {
	Type      string          `json:"type"`
	ReplyTo   string          `json:"replyTo"`
	SessionID string          `json:"sessionId"`
	MessageID string          `json:"messageId"`
	Offset    int             `json:"offset"`
	Delta     string          `json:"delta"`
	Cursor    string          `json:"cursor"`
	Recovered *bool           `json:"recovered"`
	Message   *message        `json:"message"`
	Error     json.RawMessage `json:"error"`
	code      string
}

type message struct {
	MessageID    string         `json:"messageId"`
	Role         string         `json:"role"`
	Content      string         `json:"content"`
	Status       string         `json:"status"`
	Tokens       int            `json:"tokens"`
	FinishReason string         `json:"finishReason"`
	Usage        map[string]any `json:"usage"`
}

// socket is a client's connection.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
}

// dial opens a socket with the admin key, at the server or an address in front of it.
func (p *parley) dial(url string) *socket {
	p.t.Helper()
	s, err := tryDial(p.t, url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.conn.CloseNow() })
	return s
}

func tryDial(t testing.TB, url string) (*socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, response, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1)+"/v1/stream", &websocket.DialOptions{
		Subprotocols: []string{"parley.v1"},
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + adminKey}},
		HTTPClient:   &http.Client{Transport: &http.Transport{}},
	})
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols || conn.Subprotocol() != "parley.v1" {
		return nil, fmt.Errorf("status %d, subprotocol %q", response.StatusCode, conn.Subprotocol())
	}
	conn.SetReadLimit(8 << 20)
	return &socket{t: t, conn: conn}, nil
}

// send writes a frame.
func (s *socket) send(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, body)
}

// read returns the next frame.
func (s *socket) read() (frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, body, err := s.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	var f frame
	if err := json.Unmarshal(body, &f); err != nil {
		return frame{}, fmt.Errorf("%w in %s", err, body)
	}
	if f.Error != nil {
		var e struct {
			Code string `json:"code"`
		}
		_ = json.Unmarshal(f.Error, &e)
		f.code = e.Code
	}
	return f, nil
}

// next is read for what has to come, and be of that type.
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

// subscribe subscribes and returns the answer; after may be "".
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
