package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	session = "session_0123456789abcdef"
	reply   = "msg_0000000000000002"
)

// side is the server's side of a socket: what a test has it say, where the real server would not.
type side struct {
	conn  *websocket.Conn
	nth   int // the how manieth socket
	asked map[string]any
}

// scripted is a server whose sockets a test serves.
type scripted struct {
	*httptest.Server
	sockets atomic.Int32
	served  sync.WaitGroup
	turn    sync.Mutex // one socket is served after the other
}

// Close also waits for the scripts: clients are closed first.
func (s *scripted) Close() {
	s.Server.Close()
	s.served.Wait()
}

// startScripted runs a server whose sockets are served by script, each until it returns. POST /sessions makes the one session;
// GET on the reply answers with its end, or 404 once it is gone.
func startScripted(script func(s *side), gone ...*atomic.Bool) *scripted {
	server := new(scripted)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"sessionId":%q}`, session)
	})
	mux.HandleFunc("GET /v1/sessions/"+session+"/messages/"+reply, func(w http.ResponseWriter, _ *http.Request) {
		if len(gone) > 0 && gone[0].Load() {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"code":"message_not_found","message":"The message does not exist."}}`)
			return
		}
		fmt.Fprintf(w, `{"messageId":%q,"sessionId":%q,"role":"assistant","content":"as kept","status":"interrupted"}`, reply, session)
	})
	mux.HandleFunc("GET /v1/stream", func(w http.ResponseWriter, r *http.Request) {
		server.served.Add(1)
		defer server.served.Done()
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"parley.v1"}})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		s := &side{conn: conn, nth: int(server.sockets.Add(1))}
		s.say(`{"type":"welcome","protocol":"parley.v1","heartbeatSeconds":25}`)
		server.turn.Lock()
		defer server.turn.Unlock()
		script(s)
	})
	server.Server = httptest.NewServer(mux)
	return server
}

// say writes a frame.
func (s *side) say(format string, about ...any) {
	_ = s.conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, format, about...))
}

// hear reads the next request; it reports false when the socket has ended.
func (s *side) hear() bool {
	_, body, err := s.conn.Read(context.Background())
	if err != nil {
		return false
	}
	s.asked = nil
	return json.Unmarshal(body, &s.asked) == nil
}

// hears reads requests until one of that type, and reports whether it came.
func (s *side) hears(kind string) bool {
	for s.hear() {
		if s.asked["type"] == kind {
			return true
		}
	}
	return false
}

func (s *side) subscribed(cursor string) {
	s.say(`{"type":"subscribed","replyTo":%q,"sessionId":%q,"cursor":%q,"recovered":true}`, s.asked["id"], session, cursor)
}

func (s *side) refuse(code, field string) {
	s.say(`{"type":"error","replyTo":%q,"error":{"code":%q,"message":"no","field":%q},"meta":{"requestId":"r1"}}`, s.asked["id"], code, field)
}

func (s *side) sent() {
	s.say(`{"type":"sent","replyTo":%q,"sessionId":%q,"messageId":%q}`, s.asked["id"], session, reply)
}

func (s *side) created() {
	s.say(`{"type":"message.created","sessionId":%q,"message":{"messageId":%q,"role":"assistant","status":"streaming"},"cursor":"0"}`, session, reply)
}

func (s *side) delta(offset int, text string) {
	s.say(`{"type":"message.delta","sessionId":%q,"messageId":%q,"offset":%d,"delta":%q,"cursor":"%d"}`, session, reply, offset, text, offset+len(text))
}

func (s *side) completed(text string) {
	s.say(`{"type":"message.completed","sessionId":%q,"message":{"messageId":%q,"status":"completed","content":%q,"tokens":4},"cursor":"e"}`, session, reply, text)
}

// hello answers every message.
func hello(s *side) {
	for s.hear() {
		switch s.asked["type"] {
		case "subscribe":
			s.subscribed("start")
		case "send":
			s.sent()
			s.created()
			s.delta(0, "Hello, ")
			s.delta(7, "you.")
			s.completed("Hello, you.")
		}
	}
}
