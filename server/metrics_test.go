package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/conversation/service"
	"parley/server"
	"parley/stream"
	"parley/stream/models"
)

func TestMetrics_Requests_CountedByRouteWithoutText(t *testing.T) {
	metrics := server.NewMetrics()
	broken := false
	model := modelFunc(func(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
		if broken {
			return stream.Result{}, io.ErrUnexpectedEOF
		}
		return echo(ctx, request, write)
	})
	p := start(t, model, func(o *server.Options, c *service.Options) {
		o.Metrics, c.Models = metrics, models.Of(models.New(model.Name(), metrics.Model(model), 0))
	})
	session := p.session()
	p.send(session, "something secret")
	broken = true
	p.call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "and again"}, "X-Request-Id", "mine")
	p.call("GET", "/v1/sessions/session_0000000000000000", nil)
	p.call("GET", "/v1/sessions", nil, "Authorization", "Bearer svc_live_wrong")
	p.call("GET", "/somewhere/else?key=hidden", nil)
	p.call("PROPFIND", "/v1/sessions", nil)
	p.dial()
	var a answer
	for late := time.Now().Add(testTimeout); ; { // the handshake is counted shortly after the socket's first frame
		a = p.call("GET", "/metrics", nil, "Authorization", "")
		missing := slices.DeleteFunc([]string{
			`parley_http_requests_total{method="POST",route="/v1/sessions",status="200"} 1`,
			`parley_http_requests_total{method="POST",route="/v1/sessions/:sessionId/messages",status="200"} 1`,
			`parley_http_requests_total{method="POST",route="/v1/sessions/:sessionId/messages",status="502"} 1`,
			`parley_http_requests_total{method="GET",route="/v1/sessions/:sessionId",status="404"} 1`,
			`parley_http_requests_total{method="GET",route="/v1/sessions",status="401"} 1`,
			`parley_http_requests_total{method="GET",route="/v1/stream",status="101"} 1`,
			`parley_http_requests_total{method="GET",route="none",status="404"} 1`,
			`parley_http_requests_total{method="OTHER",route="none",status="405"} 1`,
			`parley_http_request_duration_seconds_count{method="POST",route="/v1/sessions/:sessionId/messages"} 2`,
			`parley_model_calls_total{ending="completed",model="scripted"} 1`,
			`parley_model_calls_total{ending="failed",model="scripted"} 1`,
			`parley_model_first_token_seconds_count{model="scripted"} 1`,
			`parley_model_ready{model="scripted"} 1`,
			`parley_model_simulated{model="scripted"} 0`,
			`parley_model_context_tokens{model="scripted"} 0`,
			`parley_model_token_scale{model="scripted"} 1`,
			`parley_sockets 1`,
			`parley_live_replies 0`,
			`parley_topics 0`,
		}, func(line string) bool { return strings.Contains(a.raw, line+"\n") })
		if len(missing) == 0 {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("the metrics have no %q:\n%s", missing, regexp.MustCompile(`(?m)^(go_|process_|#|.*_bucket).*\n`).ReplaceAllString(a.raw, ""))
		}
	}
	for _, name := range []string{"go_goroutines ", "process_open_fds "} {
		if !strings.Contains(a.raw, "\n"+name) {
			t.Errorf("the metrics have no %s", name)
		}
	}
	if found := regexp.MustCompile(`svc_|session_[0-9A-Za-z]{16}|msg_|secret|hidden|somewhere|PROPFIND|mine`).FindString(a.raw); found != "" {
		t.Errorf("the metrics contain %q", found)
	}
}

func TestMetrics_TwoServers_CountSeparately(t *testing.T) {
	one, two := start(t, echo), start(t, echo)
	one.session()
	if a := two.call("GET", "/metrics", nil); strings.Contains(a.raw, `route="/v1/sessions",status="200"`) {
		t.Error("one server counts the requests of the other")
	}
}

// discard is a response writer that allocates nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

func TestMetrics_CountRequest_AllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	allocated := func(mount func(*server.Metrics) http.Handler) float64 {
		handler := mount(server.NewMetrics())
		request, w := httptest.NewRequest("GET", "/v1/things/1", nil), discard{make(http.Header)}
		return testing.AllocsPerRun(1000, func() { handler.ServeHTTP(w, request) })
	}
	with, without := allocated(server.CountedHandler), allocated(server.UncountedHandler)
	if with > without {
		t.Errorf("a request allocates %v times with metrics, and %v times without", with, without)
	}
}

func BenchmarkMetrics_Count(b *testing.B) {
	for name, mount := range map[string]func(*server.Metrics) http.Handler{"counted": server.CountedHandler, "uncounted": server.UncountedHandler} {
		b.Run(name, func(b *testing.B) {
			handler := mount(server.NewMetrics())
			request, w := httptest.NewRequest("GET", "/v1/things/1", nil), discard{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, request)
			}
		})
	}
}
