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

	"parley/stream"
)

// Metrics are the figures of one process, for Prometheus (design section 8). They are in a registry of their own. What
// labels them comes from the code: routes' patterns, methods, statuses, endings; never an id, a key or a text.
type Metrics struct {
	// static
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	replies  *prometheus.CounterVec
	first    prometheus.Histogram
	embeds   *prometheus.CounterVec
	embedded prometheus.Counter      // tokens
	routes   map[route]*routeMetrics // of every route, filled by mount
	others   map[string]*routeMetrics
}

// route is a route's method and pattern.
type route struct{ method, pattern string }

// statusGone is what a request counts as that was given up because its caller had gone: no fault of the service's.
const statusGone = 499

// otherMethod and otherRoute stand for all that we do not serve, so that nobody can make up series.
const (
	otherMethod = "OTHER"
	otherRoute  = "none"
)

var (
	// statuses are those that a request can be counted under without looking the counter up; another is looked up.
	statuses = [...]int{101, 200, 204, 304, 400, 401, 403, 404, 405, 409, 413, 415, 426, 429, statusGone, 500, 502, 503, 504}
	methods  = [...]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}
)

// routeMetrics are the figures of one route, their labels given: counting looks nothing up and allocates nothing.
type routeMetrics struct {
	// static
	requests *prometheus.CounterVec // what is left to give is the status
	duration prometheus.Observer

	byStatus [len(statuses)]atomic.Pointer[prometheus.Counter] // made when first needed
}

// NewMetrics returns figures that are all zero.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_http_requests_total", Help: "Requests that were answered; a WebSocket's handshake is one.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "parley_http_request_duration_seconds", Help: "How long requests took; sends that wait for the reply and event streams last as long as these.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "route"}),
		replies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_model_calls_total", Help: "Calls to the model that are over, by how they ended.",
		}, []string{"ending"}),
		first: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "parley_model_first_token_seconds", Help: "From a call to the model to the first text of it.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}),
		embeds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "parley_embedding_calls_total", Help: "Calls to the embedding model that are over, by how they ended: completed, late or failed.",
		}, []string{"ending"}),
		embedded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "parley_embedding_tokens_total", Help: "Tokens that were embedded, by the provider's own count. No session's tokenUsage has them.",
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

// mountMetrics mounts the figures; it comes after all routes.
func (s *Server) mountMetrics() {
	m := s.Metrics
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_sockets", Help: "Sockets that are open."}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(len(s.sockets))
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_live_replies", Help: "Replies that are being written here."}, func() float64 {
			return float64(s.Conversation.LiveReplies())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_topics", Help: "Sessions that are watched or written here."}, func() float64 {
			return float64(s.Conversation.Topics())
		}),
	)
	s.engine.GET("/metrics", gin.WrapH(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})))
	for _, r := range s.engine.Routes() {
		m.routes[route{r.Method, r.Path}] = m.newRoute(r.Method, r.Path)
	}
}

// count counts a request when it has been answered.
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
		status = statusGone
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
		made := r.requests.WithLabelValues(strconv.Itoa(status)) // the same one, whoever makes it first
		counter = &made
		r.byStatus[i].Store(counter)
	}
	(*counter).Inc()
}

// Model returns the model with its calls counted. It costs a call one closure, and a delta a comparison.
func (m *Metrics) Model(model stream.Model) stream.Model { return countedModel{model, m} }

type countedModel struct {
	stream.Model
	metrics *Metrics
}

// Generate implements stream.Model.
func (m countedModel) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	began, silent := time.Now(), true
	result, err := m.Model.Generate(ctx, request, func(delta []byte) {
		if silent && len(delta) > 0 {
			silent = false
			m.metrics.first.Observe(time.Since(began).Seconds())
		}
		write(delta)
	})
	ending := stream.Failed
	switch cause := context.Cause(ctx); {
	case err == nil:
		ending = stream.Completed
	case errors.Is(cause, stream.ErrCancelled):
		ending = stream.Cancelled
	case errors.Is(cause, stream.ErrInterrupted):
		ending = stream.Interrupted
	}
	m.metrics.replies.WithLabelValues(string(ending)).Inc()
	return result, err
}

// Embedder returns the embedding model with its calls counted; nil is none.
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
