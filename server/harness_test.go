package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/server"
	"parley/store"
	"parley/store/redis/redistest"
	"parley/stream"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(complete{m}, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")) // it leaves some behind
}

// shared is the Redis that all tests of nodes use, each in databases of its own.
var (
	shared    = redistest.Shared("--databases", "10000")
	databases atomic.Int64
)

// newDatabase names a store on Redis of its own.
func newDatabase(t testing.TB) string {
	if os.Getenv(storeVariable) == "cluster" {
		return redistest.Cluster(t).URL
	}
	return fmt.Sprintf("%s/%d", shared.Start(t), databases.Add(1))
}

// storeVariable is set to redis to have all tests that use no fake clock run on that store, and to cluster to have those that
// use Redis anyway run on a Cluster.
const storeVariable = "PARLEY_TEST_STORE"

const adminKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// parley is a whole server with a model of the test's own, on the embedded store unless startOn names another.
type parley struct {
	t       testing.TB
	service *conversation.Service
	handler *server.Server
	keys    *auth.Keys
	backend *store.Backend
	url     string
	client  *http.Client
	dialNet func(ctx context.Context, network, address string) (net.Conn, error)
	drained sync.Once
}

type option func(*server.Options, *conversation.Options)

// start runs a server on a loopback address until the test ends.
func start(t testing.TB, model stream.Model, options ...option) *parley {
	t.Helper()
	if os.Getenv(storeVariable) == "redis" {
		return startOn(t, newDatabase(t), model, options...)
	}
	return startOn(t, newFile(t), model, options...)
}

// newFile names an embedded store of its own.
func newFile(t testing.TB) string { return "file:" + filepath.Join(t.TempDir(), "parley.db") }

// startOn is start on the store that a URL names: several servers on one Redis are its nodes.
func startOn(t testing.TB, url string, model stream.Model, options ...option) *parley {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, url, listener, new(net.Dialer).DialContext, model, options...)
}

// serve runs a server on a listener until the test ends.
func serve(t testing.TB, url string, listener net.Listener, dial func(context.Context, string, string) (net.Conn, error), model stream.Model, options ...option) *parley {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	backend, err := store.Open(context.Background(), url, log)
	if err != nil {
		t.Fatal(err)
	}
	inner := conversation.Options{
		Store: backend.Conversation, Nodes: backend.Nodes, Model: model, Count: count, Log: log,
		Patience: stream.Patience{FirstByte: 20 * time.Second, Stall: 20 * time.Second},
	}
	tiers, err := limit.ParseTiers(`{"pro":{"requestsPerMinute":1000000000,"tokensPerMinute":1000000000}}`)
	if err != nil {
		t.Fatal(err)
	}
	tickets, err := auth.NewTickets(context.Background(), backend.Tickets)
	if err != nil {
		t.Fatal(err)
	}
	outer := server.Options{
		Keys: auth.NewKeys(backend.Keys, auth.Options{AdminKey: adminKey}), Tickets: tickets, Limits: auth.NewLimits(tiers), Ready: backend.Ping, Log: log,
	}
	for _, o := range options {
		o(&outer, &inner)
	}
	p := &parley{
		t: t, service: conversation.NewService(inner), backend: backend, url: "http://" + listener.Addr().String(), dialNet: dial,
		client: &http.Client{Transport: documented{t, &http.Transport{DialContext: dial}}},
	}
	if err := p.service.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	outer.Conversation, p.keys = p.service, outer.Keys
	p.handler = server.New(outer)
	front := &http.Server{Handler: p.handler, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = front.Serve(listener) }()
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

// drain drains the service, once.
func (p *parley) drain(ctx context.Context) { p.drained.Do(func() { p.service.Drain(ctx) }) }

// count is the tokenizer of the tests: a token is four bytes.
func count(s string) int { return (len(s) + 3) / 4 }

// withStore has the service use a store that wraps the real one.
func withStore(wrap func(conversation.Store) conversation.Store) option {
	return func(_ *server.Options, o *conversation.Options) { o.Store = wrap(o.Store) }
}

// key makes a live key of an account and returns its secret.
func (p *parley) key(account string, scopes ...auth.Scope) string {
	p.t.Helper()
	_, secret := p.newKey(account, auth.Live, auth.NewKey{Name: "a key", Scopes: scopes})
	return secret
}

// newKey makes a key and returns it with its secret.
func (p *parley) newKey(account, mode string, wanted auth.NewKey) (auth.Key, string) {
	p.t.Helper()
	key, secret, err := p.keys.CreateFor(context.Background(), auth.Owner{Account: account, Mode: mode}, wanted, limit.Pro)
	if err != nil {
		p.t.Fatal(err)
	}
	return key, secret
}

// answer is what a request was answered.
type answer struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// do makes a request with the admin key. headers are pairs; an empty value removes one, and each line of a value is sent as
// a header of its own.
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

// call makes a request and returns the answer.
func (p *parley) call(method, path string, body any, headers ...string) answer {
	p.t.Helper()
	a, err := p.do(context.Background(), method, path, body, headers...)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

// later makes a request in the background.
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

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// within returns what comes out of a channel.
func within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case v := <-from:
		return v
	case <-late.C:
		t.Fatalf("waited in vain for %s", what)
		panic("not reached")
	}
}

// must is call for what has to succeed.
func (p *parley) must(method, path string, body any) map[string]any {
	p.t.Helper()
	a := p.call(method, path, body)
	if a.status != http.StatusOK {
		p.t.Fatalf("%s %s: %d %s", method, path, a.status, a.raw)
	}
	return a.body
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

// send sends a message and waits for the reply.
func (p *parley) send(session, content string) map[string]any {
	p.t.Helper()
	return p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": content})
}

// history returns the messages of a session, oldest first.
func (p *parley) history(session string) []message {
	p.t.Helper()
	a := p.call("GET", "/v1/sessions/"+session+"/messages?limit=100&order=asc", nil)
	var page struct{ Data []message }
	if err := json.Unmarshal([]byte(a.raw), &page); err != nil || a.status != http.StatusOK {
		p.t.Fatalf("%d %s: %v", a.status, a.raw, err)
	}
	return page.Data
}

// code returns the code of an error body.
func code(body map[string]any) string {
	e, _ := body["error"].(map[string]any)
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

	Protocol         string `json:"protocol"`
	ConnectionID     string `json:"connectionId"`
	HeartbeatSeconds int    `json:"heartbeatSeconds"`
	ReconnectAfterMs int    `json:"reconnectAfterMs"`

	code, field string // of Error
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

// socket is a client's connection.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
	log  frameLog
}

// dial opens a socket with the admin key and takes the welcome.
func (p *parley) dial() *socket {
	p.t.Helper()
	s, err := p.tryDial(p.url, websocket.DialOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.conn.CloseNow() })
	s.next("welcome")
	return s
}

// tryDial opens a socket at the server or an address in front of it: with the admin key, unless options say otherwise.
func (p *parley) tryDial(url string, options websocket.DialOptions) (*socket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if options.HTTPHeader == nil {
		options.HTTPHeader = http.Header{"Authorization": {"Bearer " + adminKey}}
	}
	if options.Subprotocols == nil {
		options.Subprotocols = []string{"parley.v1"}
	}
	options.HTTPClient = &http.Client{Transport: documented{p.t, &http.Transport{DialContext: p.dialNet, DisableKeepAlives: true}}}
	path, query, _ := strings.Cut(url, "?")
	conn, response, err := websocket.Dial(ctx, strings.Replace(path, "http", "ws", 1)+"/v1/stream?"+query, &options)
	if err != nil {
		if response != nil {
			return nil, &refusal{response}
		}
		return nil, err
	}
	if conn.Subprotocol() != "parley.v1" {
		return nil, fmt.Errorf("the subprotocol is %q", conn.Subprotocol())
	}
	conn.SetReadLimit(8 << 20)
	return &socket{t: p.t, conn: conn}, nil
}

// refusal is a handshake that was answered otherwise.
type refusal struct{ *http.Response }

func (r *refusal) Error() string { return r.Status }

// send writes a frame.
func (s *socket) send(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.text(string(body))
}

// text writes a frame as it stands.
func (s *socket) text(body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.log.write([]byte(body))
	return s.conn.Write(ctx, websocket.MessageText, []byte(body))
}

// read returns the next frame.
func (s *socket) read() (frame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, body, err := s.conn.Read(ctx)
	if err != nil {
		return frame{}, err
	}
	s.log.read(s.t, body)
	f := frame{raw: string(body)}
	if err := json.Unmarshal(body, &f); err != nil {
		return frame{}, fmt.Errorf("%w in %s", err, body)
	}
	if f.Error != nil {
		var e struct {
			Code, Field string
		}
		_ = json.Unmarshal(f.Error, &e)
		f.code, f.field = e.Code, e.Field
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

// any returns the next frame, whichever it is.
func (s *socket) any() frame {
	s.t.Helper()
	f, err := s.read()
	if err != nil {
		s.t.Fatal(err)
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

// mustSubscribe subscribes, and the answer has to be the next frame.
func (s *socket) mustSubscribe(session, after string) frame {
	s.t.Helper()
	f, err := s.subscribe(session, after)
	if err != nil || f.Type != "subscribed" {
		s.t.Fatalf("%+v, %v", f, err)
	}
	return f
}

// must writes a frame.
func (s *socket) must(v any) {
	s.t.Helper()
	if err := s.send(v); err != nil {
		s.t.Fatal(err)
	}
}

// closed reads until the connection ends, and returns the close code.
func (s *socket) closed() int {
	s.t.Helper()
	for {
		if _, err := s.read(); err != nil {
			return int(websocket.CloseStatus(err))
		}
	}
}

// logTo has everything logged there, debugging included.
func logTo(w io.Writer) option {
	return func(o *server.Options, c *conversation.Options) {
		o.Log = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Log = o.Log
	}
}
