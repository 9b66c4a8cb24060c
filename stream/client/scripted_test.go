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

// serverSide is the server's side of a socket. A script, which is a function of the test, reads and writes the frames.
type serverSide struct {
	conn    *websocket.Conn
	nth     int            // the number of the socket, from 1
	request map[string]any // the last request
}

// scriptedServer is a server that runs a script for each socket.
type scriptedServer struct {
	*httptest.Server
	sockets atomic.Int32
	served  sync.WaitGroup
	script  sync.Mutex // a script holds it while it runs, so that only one script runs at a time
}

// Close stops the server and waits until the scripts have returned. Close the clients first: a script may wait for a frame
// until the client closes the socket.
func (s *scriptedServer) Close() {
	s.Server.Close()
	s.served.Wait()
}

// startScripted starts a server that runs script for each socket. POST /sessions returns the session with the id session.
// GET of the message with the id reply returns an interrupted reply, or 404 if gone is true.
func startScripted(script func(s *serverSide), gone ...*atomic.Bool) *scriptedServer {
	server := new(scriptedServer)
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
		s := &serverSide{conn: conn, nth: int(server.sockets.Add(1))}
		s.write(`{"type":"welcome","protocol":"parley.v1","heartbeatSeconds":25}`)
		server.script.Lock()
		defer server.script.Unlock()
		script(s)
	})
	server.Server = httptest.NewServer(mux)
	return server
}

// write writes a frame, which it formats like fmt.Sprintf.
func (s *serverSide) write(format string, about ...any) {
	_ = s.conn.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, format, about...))
}

// readRequest reads the next request. It returns false if the socket is closed.
func (s *serverSide) readRequest() bool {
	_, body, err := s.conn.Read(context.Background())
	if err != nil {
		return false
	}
	s.request = nil
	return json.Unmarshal(body, &s.request) == nil
}

// waitFor reads requests until a request has the type kind. It returns false if the socket is closed first.
func (s *serverSide) waitFor(kind string) bool {
	for s.readRequest() {
		if s.request["type"] == kind {
			return true
		}
	}
	return false
}

func (s *serverSide) subscribed(cursor string) {
	s.write(`{"type":"subscribed","replyTo":%q,"sessionId":%q,"cursor":%q,"recovered":true}`, s.request["id"], session, cursor)
}

func (s *serverSide) refuse(code, field string) {
	s.write(`{"type":"error","replyTo":%q,"error":{"code":%q,"message":"no","field":%q},"meta":{"requestId":"r1"}}`, s.request["id"], code, field)
}

func (s *serverSide) sent() {
	s.write(`{"type":"sent","replyTo":%q,"sessionId":%q,"messageId":%q}`, s.request["id"], session, reply)
}

func (s *serverSide) created() {
	s.write(`{"type":"message.created","sessionId":%q,"message":{"messageId":%q,"role":"assistant","status":"streaming"},"cursor":"0"}`, session, reply)
}

func (s *serverSide) delta(offset int, text string) {
	s.write(`{"type":"message.delta","sessionId":%q,"messageId":%q,"offset":%d,"delta":%q,"cursor":"%d"}`, session, reply, offset, text, offset+len(text))
}

func (s *serverSide) completed(text string) {
	s.write(`{"type":"message.completed","sessionId":%q,"message":{"messageId":%q,"status":"completed","content":%q,"tokens":4},"cursor":"e"}`, session, reply, text)
}

// hello is a script that replies "Hello, you." to every message.
func hello(s *serverSide) {
	for s.readRequest() {
		switch s.request["type"] {
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
