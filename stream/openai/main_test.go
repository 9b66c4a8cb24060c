package openai

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// longTimeouts are longer than each test takes.
var longTimeouts = stream.Timeouts{FirstByte: time.Minute, Stall: time.Minute}

var hello = stream.Request{
	Messages:  []stream.PromptMessage{{Role: "system", Content: "You are a bard."}, {Role: "user", Content: "Once upon a time"}},
	MaxTokens: 64,
}

// rawServer is an HTTP server on a loopback address. A function of the test writes the raw bytes of each response. After a
// response, the server closes the connection.
type rawServer struct {
	listener net.Listener
	done     chan struct{}
	requests atomic.Int32
}

// serveRaw starts a rawServer. answer writes the response to a request. n is the number of the request, from 1.
func serveRaw(t testing.TB, answer func(n int, w net.Conn, r *http.Request)) *rawServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{listener: listener, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serve(conn, answer)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-s.done
	})
	return s
}

func (s *rawServer) serve(conn net.Conn, answer func(int, net.Conn, *http.Request)) {
	defer conn.Close()
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	answer(int(s.requests.Add(1)), conn, r)
}

func (s *rawServer) url() string { return "http://" + s.listener.Addr().String() + "/v1" }

// open returns a model of the server at baseURL, and closes the model at the end of the test.
func open(t testing.TB, baseURL string) *Model {
	m := New(Options{BaseURL: baseURL, Key: "sk-secret-key", Name: "stories"})
	t.Cleanup(m.Close)
	return m
}

// pumped calls stream.Pump with the request hello. It returns the outcome and the text of the reply.
func pumped(model stream.Model) (stream.Outcome, string) {
	reply := stream.NewReply("msg_1")
	outcome := stream.Pump(context.Background(), model, hello, reply, longTimeouts)
	text, _ := reply.Snapshot()
	return outcome, string(text)
}
