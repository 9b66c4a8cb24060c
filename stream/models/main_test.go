package models

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hangTimeout ends a test that hangs. Nothing that works takes as long.
const hangTimeout = time.Minute

// idle is a model that generates nothing.
type idle struct{}

func (idle) Name() string { return "nothing" }
func (idle) Generate(context.Context, stream.Request, func([]byte)) (stream.Result, error) {
	return stream.Result{}, nil
}

// fakeServer is a model server with one address. The test changes what it responds.
type fakeServer struct {
	url string // the base URL, with /v1

	mu       sync.Mutex
	models   string // guarded by mu; the entries of the list; "" means that the server does not respond with a list
	status   int    // guarded by mu; the status of all responses
	chat     int    // guarded by mu; the status of a reply; 0 means status
	requests int    // guarded by mu; number of requests for the list, also of those that failed
	asked    string // guarded by mu; the provider's name in the newest request for a reply
}

func newFakeServer(t *testing.T, entries string) *fakeServer {
	f := &fakeServer{models: entries, status: http.StatusOK}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL + "/v1"
	return f
}

func (f *fakeServer) set(status int, entries string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.models = status, entries
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/v1/models" {
		f.requests++
	}
	switch {
	case r.URL.Path == "/v1/chat/completions" && f.chat != 0:
		w.WriteHeader(f.chat)
	case f.status != http.StatusOK:
		w.WriteHeader(f.status)
	case r.URL.Path == "/v1/models" && f.models != "":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","data":[%s]}`, f.models)
	case r.URL.Path == "/v1/chat/completions":
		var body struct{ Model string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		f.asked = body.Model
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	default:
		http.NotFound(w, r)
	}
}

// probes returns the number of requests for the list.
func (f *fakeServer) probes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// freeAddress returns an address at which nothing listens.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// logged collects log lines.
type logged struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns the number of lines that contain part.
func (l *logged) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// fast are intervals for tests: only failed replies and retries cause probes, and retries come at once.
var fast = intervals{retryFirst: time.Millisecond, retryMost: time.Millisecond, probeEvery: time.Hour, detectEvery: time.Millisecond}

// open starts a set with fast probes. It closes the set at the end of the test.
func open(t *testing.T, o Options) *Set {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := Open(o)
	for _, m := range s.Models() {
		m.pace = fast
	}
	s.Find(t.Context())
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// await waits until the model has the state.
func await(t *testing.T, m *Model, want Status) {
	t.Helper()
	eventually(t, func() bool { return m.Status() == want }, func() string { return fmt.Sprintf("the status is %+v, want %+v", m.Status(), want) })
}

func eventually(t *testing.T, done func() bool, otherwise func() string) {
	t.Helper()
	for late := time.Now().Add(hangTimeout); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal(otherwise())
		}
	}
}

// generate requests a reply and returns its text.
func generate(m *Model) (text string, err error) {
	_, err = m.Generate(context.Background(), stream.Request{Messages: []stream.PromptMessage{{Role: "user", Content: "hello"}}},
		func(delta []byte) { text += string(delta) })
	return text, err
}
