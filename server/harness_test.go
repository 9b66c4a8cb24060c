package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/server"
	"parley/store"
	"parley/store/redis/redistest"
	"parley/stream"
	"parley/stream/models"
)

func TestMain(m *testing.M) {
	// The command line overrides these values.
	for name, value := range map[string]string{
		// Parallel tests spend most of their time waiting for timers, for failovers of Redis and for other processes. With the
		// default of one test per core, a machine would be idle most of the time. With more than four per core, tests would wait
		// seconds for the processor, and miss deadlines.
		"test.parallel": strconv.Itoa(4 * runtime.GOMAXPROCS(0)),
		// A run has hundreds of steps, so rapid's default of a hundred runs would take minutes.
		"rapid.checks": "10",
	} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	// toxiproxy leaks goroutines of the first function. Goroutines of the second function end a second after the
	// go-redis client was closed.
	goleak.VerifyTestMain(complete{m}, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// shared is a Redis server for many tests. databases is the number of databases that tests have taken on that server.
var (
	shared    = redistest.Shared("--databases", "10000")
	databases atomic.Int64
)

// newDatabase returns the URL of an empty database on the shared Redis. If storeVariable is "cluster", it starts a Redis Cluster
// instead.
func newDatabase(t testing.TB) string {
	if os.Getenv(storeVariable) == "cluster" {
		return redistest.Cluster(t).URL + redistest.Patient
	}
	return fmt.Sprintf("%s/%d%s", shared.Start(t), databases.Add(1), redistest.Patient)
}

// storeVariable is an environment variable that chooses the store of the tests. With "redis", start uses Redis instead of the
// embedded store. With "cluster", newDatabase starts a Redis Cluster.
const storeVariable = "PARLEY_TEST_STORE"

const adminKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// parley is a complete server with a model that the test provides.
type parley struct {
	t       testing.TB
	service *service.Service
	handler *server.Server
	keys    *auth.Keys
	backend *store.Backend
	url     string
	client  *http.Client
	dialNet func(ctx context.Context, network, address string) (net.Conn, error)
	drained sync.Once
}

type option func(*server.Options, *service.Options)

// start runs a server on a loopback address until the test ends. The store is embedded, unless storeVariable is "redis".
func start(t testing.TB, model stream.Model, options ...option) *parley {
	t.Helper()
	if os.Getenv(storeVariable) == "redis" {
		return startOn(t, newDatabase(t), model, options...)
	}
	return startOn(t, newFile(t), model, options...)
}

// newFile returns the URL of an empty embedded store.
func newFile(t testing.TB) string { return "file:" + filepath.Join(t.TempDir(), "parley.db") }

// startOn is like start, but uses the store at url. Servers that share a Redis store are nodes of one service.
func startOn(t testing.TB, url string, model stream.Model, options ...option) *parley {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, url, listener, new(net.Dialer).DialContext, model, options...)
}

// serve runs a server on a listener until the test ends. The test's clients connect with dial.
func serve(t testing.TB, url string, listener net.Listener, dial func(context.Context, string, string) (net.Conn, error), model stream.Model, options ...option) *parley {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	backend, err := store.Open(context.Background(), url, log)
	// On a busy machine, Redis may respond too late.
	for began := time.Now(); errors.Is(err, conversation.ErrUnavailable) && time.Since(began) < testTimeout; {
		backend, err = store.Open(context.Background(), url, log)
	}
	if err != nil {
		t.Fatal(err)
	}
	inner := service.Options{
		Store: conversationtest.BegunFirst{Store: backend.Conversation}, Nodes: backend.Nodes,
		Models: models.Of(models.New(model.Name(), model, 0)), Count: count, Log: log,
		// So long that no test reaches these timeouts, even on a slow machine.
		Timeouts: stream.Timeouts{FirstByte: testTimeout, Stall: testTimeout},
	}
	tiers, err := limit.ParseTiers(`{"pro":{"requestsPerMinute":1000000000,"tokensPerMinute":1000000000,"framesPerMinute":1000000000,"sockets":1000000}}`)
	if err != nil {
		t.Fatal(err)
	}
	outer := server.Options{
		Keys: auth.NewKeys(backend.Keys, auth.Options{AdminKey: adminKey}), Limits: auth.NewLimits(tiers), Ready: backend.Ping, Log: log,
		Models: models.Of(models.New("scripted", model, 0)),
	}
	for _, o := range options {
		o(&outer, &inner)
	}
	p := &parley{
		t: t, service: service.New(inner), backend: backend, url: "http://" + listener.Addr().String(), dialNet: dial,
		client: &http.Client{Transport: documented{t, &http.Transport{DialContext: dial}}},
	}
	if err := p.service.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	outer.Conversation, p.keys = p.service, outer.Keys
	p.handler = server.New(outer)
	front := &http.Server{Handler: p.handler, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ReadHeaderTimeout: testTimeout}
	served := make(chan struct{})
	p.handler.Connections.Configure(front)
	go func() { defer close(served); _ = front.Serve(p.handler.Connections.Listener(listener)) }()
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.handler.BeginDrain()
		p.drain(now)
		p.client.CloseIdleConnections()
		_ = front.Close()
		<-served
		p.handler.DrainSockets(now)
		if err := errors.Join(p.keys.Close(context.Background()), backend.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// drain drains the service. Later calls do nothing.
func (p *parley) drain(ctx context.Context) { p.drained.Do(func() { p.service.Drain(ctx) }) }

// count estimates the tokens of a text: one per four bytes, rounded up.
func count(s string) int { return (len(s) + 3) / 4 }

// withStore returns an option that replaces the service's store with the result of wrap.
func withStore(wrap func(conversation.Store) conversation.Store) option {
	return func(_ *server.Options, o *service.Options) { o.Store = wrap(o.Store) }
}

// early is an option: the model is called while the embedded store writes the beginning of a turn, as in production.
func early(_ *server.Options, o *service.Options) { conversationtest.Early(o) }

// key creates an API key of an account in live mode and returns the key's secret.
func (p *parley) key(account string, scopes ...auth.Scope) string {
	p.t.Helper()
	_, secret := p.newKey(account, auth.Live, auth.NewKey{Name: "a key", Scopes: scopes})
	return secret
}

// newKey creates an API key and returns the key and its secret.
func (p *parley) newKey(account, mode string, wanted auth.NewKey) (auth.Key, string) {
	p.t.Helper()
	key, secret, err := p.keys.CreateFor(context.Background(), auth.Owner{Account: account, Mode: mode}, wanted, limit.Pro)
	if err != nil {
		p.t.Fatal(err)
	}
	return key, secret
}

// answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// do makes a request with the admin key. headers holds alternating names and values. An empty value removes the header. A value
// of several lines sends one header for each line.
func (p *parley) do(ctx context.Context, method, path string, body any, headers ...string) (answer, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+adminKey)
	if reader != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Del(headers[i])
		for line := range strings.Lines(headers[i+1]) {
			request.Header.Add(headers[i], strings.TrimSuffix(line, "\n"))
		}
	}
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: response.StatusCode, header: response.Header, raw: string(raw)}
	if strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			return answer{}, fmt.Errorf("%s %s: %w in %s", method, path, err, raw)
		}
	}
	return a, nil
}

// call makes a request with the method do. An error ends the test.
func (p *parley) call(method, path string, body any, headers ...string) answer {
	p.t.Helper()
	a, err := p.do(context.Background(), method, path, body, headers...)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// later makes a request in the background and sends the response to the channel. After an error, raw holds the error's text.
func (p *parley) later(method, path string, body any, headers ...string) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		a, err := p.do(context.Background(), method, path, body, headers...)
		if err != nil {
			a.raw = err.Error()
		}
		answers <- a
	}()
	return answers
}

// testTimeout is the longest time that a test waits for an event. It is so long that only a test that hangs reaches it, even on a
// slow machine.
const testTimeout = 2 * time.Minute

// within returns the next value of a channel. If none arrives within testTimeout, the test fails. The parameter what names the
// awaited value in the failure message.
func within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	late := time.NewTimer(testTimeout)
	defer late.Stop()
	select {
	case v := <-from:
		return v
	case <-late.C:
		t.Fatalf("timed out waiting for %s", what)
		panic("not reached")
	}
}

// patient makes a request like call. Like a client, it repeats a request that gets 503: on a busy machine, Redis may respond too
// late. It does not repeat a send, because the message may have been stored.
func (p *parley) patient(method, path string, body any) answer {
	p.t.Helper()
	isSend := method == "POST" && strings.HasSuffix(path, "/messages")
	for late := time.Now().Add(testTimeout); ; <-time.After(50 * time.Millisecond) {
		a := p.call(method, path, body)
		if isSend || a.status != http.StatusServiceUnavailable || time.Now().After(late) {
			return a
		}
	}
}

// must makes a request like patient, and returns the body of the response. Any status other than 200 ends the test.
func (p *parley) must(method, path string, body any) map[string]any {
	p.t.Helper()
	a := p.patient(method, path, body)
	if a.status != http.StatusOK {
		p.t.Fatalf("%s %s: %d %s", method, path, a.status, a.raw)
	}
	return a.body
}

// session creates a session and returns its id.
func (p *parley) session() string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
}

// begin sends a message with "streaming": true. It returns the body of the response, which arrives when the turn has begun.
func (p *parley) begin(session, content string) map[string]any {
	p.t.Helper()
	return p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": content, "streaming": true})
}

// send sends a message and returns the body of the response, which arrives when the reply has ended.
func (p *parley) send(session, content string) map[string]any {
	p.t.Helper()
	return p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": content})
}

// history returns the first 100 messages of a session, oldest first.
func (p *parley) history(session string) []message {
	p.t.Helper()
	a := p.patient("GET", "/v1/sessions/"+session+"/messages?limit=100&order=asc", nil)
	var page struct{ Data []message }
	if err := json.Unmarshal([]byte(a.raw), &page); err != nil || a.status != http.StatusOK {
		p.t.Fatalf("%d %s: %v", a.status, a.raw, err)
	}
	return page.Data
}

// code returns the error code in the body of a response, or "" if the body is not an error.
func code(body map[string]any) string {
	e, _ := body["error"].(map[string]any)
	c, _ := e["code"].(string)
	return c
}

// frame is a frame of parley.v1 from the server.
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

	Protocol         string `json:"protocol"`
	ConnectionID     string `json:"connectionId"`
	HeartbeatSeconds int    `json:"heartbeatSeconds"`
	ReconnectAfterMs int    `json:"reconnectAfterMs"`

	code, field string // the code and the field in Error
	raw         string
}

type message struct {
	MessageID    string         `json:"messageId"`
	Role         string         `json:"role"`
	Content      string         `json:"content"`
	Status       string         `json:"status"`
	Tokens       int            `json:"tokens"`
	FinishReason string         `json:"finishReason"`
	Usage        map[string]any `json:"usage"`
	Error        map[string]any `json:"error"`
	Context      map[string]any `json:"context"`
	Metadata     map[string]any `json:"metadata"`
}

// logTo returns an option that writes the log of the server to w, including debug messages.
func logTo(w io.Writer) option {
	return func(o *server.Options, c *service.Options) {
		o.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Log = o.Log
	}
}
