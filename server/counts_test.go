package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/stream"
)

// operations are the most frequent requests. allocations is the maximum number of allocations of the server for one request, with
// a margin of 3 %. It includes both commits of a turn, which callers share under load, and no allocations of net/http.
var operations = []struct {
	name, method, path, body string
	messages                 int // messages of the session before the request
	allocations              float64
}{
	{"create a session", "POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, 0, 219},
	{"send, whole reply", "POST", "/v1/sessions/{id}/messages", `{"content":"What is the capital of France?"}`, 0, 553},
	{"send, streaming", "POST", "/v1/sessions/{id}/messages", `{"content":"What is the capital of France?","streaming":true}`, 0, 426},
	{"page of 20 messages", "GET", "/v1/sessions/{id}/messages?limit=20", "", 20, 204},
}

// story is a model that sends 50 tokens.
var story = modelFunc(func(_ context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
	for range 50 {
		write([]byte(" token"))
	}
	return stream.Result{FinishReason: "stop", Usage: &stream.Usage{Prompt: 10, Completion: 50}}, nil
})

// discardBody is a response writer that discards the body.
type discardBody struct {
	header http.Header
	status int
}

func (d *discardBody) Header() http.Header             { return d.header }
func (d *discardBody) Write(b []byte) (int, error)     { return len(b), nil }
func (d *discardBody) WriteHeader(status int)          { d.status = status }
func (d *discardBody) SetReadDeadline(time.Time) error { return nil }

// requests returns a function that makes the next of n requests, without a network. Each request has a session of its own.
func (p *parley) requests(n int, method, path, body string, messages int) (serve func()) {
	key := "Bearer " + p.key("acme", auth.ReadSessions, auth.WriteSessions, auth.ReadMessages, auth.WriteMessages)
	prepared := make([]*http.Request, n)
	for i := range prepared {
		path := path
		if strings.Contains(path, "{id}") {
			id := p.call("POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, "Authorization", key).body["sessionId"].(string)
			path = strings.Replace(path, "{id}", id, 1)
			for range messages / 2 {
				p.call("POST", "/v1/sessions/"+id+"/messages", `{"content":"Hello!"}`, "Authorization", key)
			}
		}
		prepared[i] = httptest.NewRequest(method, path, strings.NewReader(body))
		prepared[i].Header = http.Header{"Authorization": {key}, "Content-Type": {"application/json"}}
	}
	next := 0
	return func() {
		w := &discardBody{header: make(http.Header, 16), status: http.StatusOK}
		p.handler.ServeHTTP(w, prepared[next])
		next++
		if w.status != http.StatusOK {
			p.t.Errorf("status %d", w.status)
		}
	}
}

func TestOperations_AllocationsBounded(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	p := startOn(t, newFile(t), story, early)
	for _, o := range operations {
		t.Run(o.name, func(t *testing.T) {
			const runs = 8
			n := testing.AllocsPerRun(runs, p.requests(runs+1, o.method, o.path, o.body, o.messages))
			t.Logf("%.0f allocations", n)
			if n > o.allocations {
				t.Errorf("%.0f allocations, want at most %.0f", n, o.allocations)
			}
		})
	}
}

func BenchmarkOperation(b *testing.B) {
	for _, o := range operations {
		b.Run(o.name, func(b *testing.B) {
			p := startOn(b, newFile(b), story, early)
			serve := p.requests(b.N, o.method, o.path, o.body, o.messages)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				serve()
			}
		})
	}
}

func TestResponse_SmallAndLargeBody_HasContentLength(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	for _, size := range []int{1, 3000} {
		a := p.call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": strings.Repeat("x", size)})
		if got := a.header.Get("Content-Length"); got != strconv.Itoa(len(a.raw)) {
			t.Errorf("a body of %d bytes has the Content-Length %q", len(a.raw), got)
		}
	}
}
