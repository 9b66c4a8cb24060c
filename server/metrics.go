package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"parley/server/transport"
	"parley/stream"
)

// Metrics holds the Prometheus metrics of one process, in its own registry. Label values come from the code (route patterns,
// methods, statuses, endings) and from the configuration (names of models), never from a request: an id or a key must not reach a monitoring system,
// and a client must not be able to create time series.
type Metrics struct {
	// static
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	replies  *prometheus.CounterVec
	first    *prometheus.HistogramVec
	embeds   *prometheus.CounterVec
	embedded prometheus.Counter       // tokens sent to the embedding model
	routes   map[route]*routeMetrics  // filled by mountMetrics
	others   map[string]*routeMetrics // by method: requests that match no route
}

// route is a route's method and pattern.
type route struct{ method, pattern string }

// statusClientClosed replaces a 503 in the metrics if the caller had already disconnected, because the service is not at
// fault. nginx uses the same number.
const statusClientClosed = 499

// otherMethod and otherRoute are the labels of unknown methods and of requests that match no route.
const (
	otherMethod = "OTHER"
	otherRoute  = "none"
)

var (
	// statuses lists the statuses with cached counters. The counter of any other status is looked up for each request.
	statuses = [...]int{101, 200, 204, 304, 400, 401, 403, 404, 405, 409, 413, 415, 426, 429, statusClientClosed, 500, 502, 503, 504}
	methods  = [...]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
)

// routeMetrics holds the metrics of one route with their labels applied, so that counting allocates nothing.
type routeMetrics struct {
	// static
	requests *prometheus.CounterVec // lacks only the label status
	duration prometheus.Observer

	byStatus [len(statuses)]atomic.Pointer[prometheus.Counter] // set on first use
}

// NewMetrics returns metrics without any counts.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_http_requests_total", Help: "HTTP requests served. A WebSocket handshake counts as one.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "parley_http_request_duration_seconds", Help: "Duration of HTTP requests. Sends that wait for a reply, and event streams, last as long as the reply.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "route"}),
		replies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_model_calls_total", Help: "Finished calls to a model, by its configured name and how they ended.",
		}, []string{"model", "ending"}),
		first: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "parley_model_first_token_seconds", Help: "Time from the call to the model to its first text.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"model"}),
		embeds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_embedding_calls_total", Help: "Finished calls to the embedding model, by how they ended: completed, late (timed out) or failed.",
		}, []string{"ending"}),
		embedded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "parley_embedding_tokens_total", Help: "Tokens sent to the embedding model, as the provider counts them. They are in no session's tokenUsage.",
		}),
		routes: make(map[route]*routeMetrics),
		others: make(map[string]*routeMetrics),
	}
	m.registry.MustRegister(m.requests, m.duration, m.replies, m.first, m.embeds, m.embedded,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, method := range append(methods[:], otherMethod) {
		m.others[method] = m.newRoute(method, otherRoute)
	}
	return m
}

func (m *Metrics) newRoute(method, pattern string) *routeMetrics {
	labels := prometheus.Labels{"method": method, "route": pattern}
	return &routeMetrics{requests: m.requests.MustCurryWith(labels), duration: m.duration.With(labels)}
}

// mountMetrics mounts /metrics. It must be called after all other routes are mounted, because it reads their patterns.
func (s *Server) mountMetrics() {
	m := s.Metrics
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_sockets", Help: "Open WebSocket connections."}, func() float64 {
			return float64(s.sockets.Open())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_live_replies", Help: "Replies that this process is generating."}, func() float64 {
			return float64(s.Conversation.LiveReplies())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_inflight_sends", Help: "Sends in flight in this process: live, queued, or arriving."}, func() float64 {
			return float64(s.Conversation.InFlight())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_topics", Help: "Sessions with a viewer or a live reply in this process."}, func() float64 {
			return float64(s.Conversation.Topics())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_connections", Help: "Open network connections, including WebSockets."}, func() float64 {
			return float64(s.Connections.Open())
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "parley_connections_stalled_total", Help: "Connections that were cut because the client did not read for 30 s."}, func() float64 {
			return float64(s.Connections.Stalled())
		}),
		s.refusals("server", transport.ErrFull), s.refusals("client", transport.ErrClientFull),
	)
	m.mountModels(s.Models)
	s.engine.GET("/metrics", gin.WrapH(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	for _, r := range s.engine.Routes() {
		m.routes[route{r.Method, r.Path}] = m.newRoute(r.Method, r.Path)
	}
}

// refusals returns the counter of connections and requests that were refused for one reason. full is the label of the counter:
// "server" or "client", whichever has too many connections.
func (s *Server) refusals(full string, reason error) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "parley_connections_refused_total", Help: "Connections and requests that were refused, by what has too many connections: the server or the client.",
		ConstLabels: prometheus.Labels{"full": full},
	}, func() float64 { return float64(s.Connections.Refused(reason)) })
}

// count is middleware. It counts a request after its response.
func (m *Metrics) count(c *gin.Context) {
	began := time.Now()
	c.Next()
	r := m.routes[route{c.Request.Method, c.FullPath()}]
	if r == nil {
		if r = m.others[c.Request.Method]; r == nil {
			r = m.others[otherMethod]
		}
	}
	status := c.Writer.Status()
	if status == http.StatusServiceUnavailable && c.Request.Context().Err() != nil {
		status = statusClientClosed
	}
	r.count(status)
	r.duration.Observe(time.Since(began).Seconds())
}

func (r *routeMetrics) count(status int) {
	i := slices.Index(statuses[:], status)
	if i < 0 {
		r.requests.WithLabelValues(strconv.Itoa(status)).Inc()
		return
	}
	counter := r.byStatus[i].Load()
	if counter == nil {
		found := r.requests.WithLabelValues(strconv.Itoa(status)) // every goroutine gets the same counter, so a race is harmless
		counter = &found
		r.byStatus[i].Store(counter)
	}
	(*counter).Inc()
}

// Model wraps model to count its calls and to measure the time to the first text. The label is the name of model, so it must be a
// configured name. The wrapper costs one closure per call and one comparison per delta.
func (m *Metrics) Model(model stream.Model) stream.Model {
	label := prometheus.Labels{"model": model.Name()}
	return countedModel{model, m.replies.MustCurryWith(label), m.first.With(label)}
}

type countedModel struct {
	stream.Model
	replies *prometheus.CounterVec // lacks only the label ending
	first   prometheus.Observer
}

// Generate implements stream.Model.
func (m countedModel) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	began, silent := time.Now(), true
	result, err := m.Model.Generate(ctx, request, func(delta []byte) {
		if silent && len(delta) > 0 {
			silent = false
			m.first.Observe(time.Since(began).Seconds())
		}
		write(delta)
	})
	ending := stream.Failed
	switch cause := context.Cause(ctx); {
	case err == nil, errors.Is(cause, stream.ErrFull):
		ending = stream.Completed
	case errors.Is(cause, stream.ErrCancelled):
		ending = stream.Cancelled
	case errors.Is(cause, stream.ErrInterrupted):
		ending = stream.Interrupted
	}
	m.replies.WithLabelValues(string(ending)).Inc()
	return result, err
}

// Embedder wraps embedder to count its calls. If embedder is nil, it returns nil.
func (m *Metrics) Embedder(embedder stream.Embedder) stream.Embedder {
	if embedder == nil {
		return nil
	}
	return countedEmbedder{embedder, m}
}

type countedEmbedder struct {
	stream.Embedder
	metrics *Metrics
}

// Embed implements stream.Embedder.
func (e countedEmbedder) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	found, err := e.Embedder.Embed(ctx, texts)
	ending := "failed"
	switch {
	case err == nil:
		ending = "completed"
	case errors.Is(err, context.DeadlineExceeded):
		ending = "late"
	}
	e.metrics.embeds.WithLabelValues(ending).Inc()
	e.metrics.embedded.Add(float64(found.Tokens))
	return found, err
}
