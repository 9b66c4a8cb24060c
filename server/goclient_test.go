package server_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
	"parley/stream"
	"parley/stream/client"
)

// cuttingDialer opens connections that end after a number of bytes, counted over both directions. The cut may be anywhere in a
// frame or in the handshake.
type cuttingDialer struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	mu    sync.Mutex
	after func() int // guarded by mu; returns the number of bytes for a new connection; 0 means no cut
	dials atomic.Int32
	cuts  atomic.Int32
}

// cutConn is a connection that ends after a number of bytes, which left counts down.
type cutConn struct {
	net.Conn
	by   *cuttingDialer
	once sync.Once
	left atomic.Int64
}

func (s *cuttingDialer) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s.dials.Add(1)
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after == nil {
		return conn, nil
	}
	n := s.after()
	if n == 0 {
		return conn, nil
	}
	c := &cutConn{Conn: conn, by: s}
	c.left.Store(int64(n))
	return c, nil
}

func (c *cutConn) cut() error {
	c.once.Do(func() { c.by.cuts.Add(1); _ = c.Conn.Close() })
	return syscall.ECONNRESET
}

func (c *cutConn) Read(b []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		return 0, c.cut()
	}
	n, err := c.Conn.Read(b[:min(len(b), int(left))])
	c.left.Add(-int64(n))
	return n, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	left := c.left.Load()
	if left > int64(len(b)) {
		n, err := c.Conn.Write(b)
		c.left.Add(-int64(n))
		return n, err
	}
	n, _ := c.Conn.Write(b[:max(0, left)])
	return n, c.cut()
}

// goClient returns a client with the admin key, and the dialer of the client's connections.
func (p *parley) goClient(t testing.TB, options ...func(*client.Options)) (*client.Client, *cuttingDialer) {
	s := &cuttingDialer{dial: p.dialNet}
	transport := &http.Transport{DialContext: s.dialContext, DisableKeepAlives: true}
	o := client.Options{BaseURL: p.url + "/v1", Key: adminKey, HTTPClient: &http.Client{Transport: transport}}
	for _, option := range options {
		option(&o)
	}
	c := client.New(o)
	t.Cleanup(c.Close)
	return c, s
}

func withKey(key string) func(*client.Options) { return func(o *client.Options) { o.Key = key } }

// eventCollector collects the events of a Go client and checks their order.
type eventCollector struct {
	t     testing.TB
	texts []string // texts of the replies that have ended
	text  string   // text of the live reply so far
	at    string   // id of the live reply; "" if there is none
	asked int      // number of users' messages
}

// take adds an event. An event that is out of order ends the test.
func (r *eventCollector) take(e client.Event) {
	r.t.Helper()
	switch {
	case e.Type == client.Created && e.Message.Role == "user":
		r.asked++
	case e.Type == client.Created && r.at == "" && e.Message.Status == "streaming" && e.Message.Content == "":
		r.at, r.text = e.MessageID, ""
	case e.Type == client.Delta && e.MessageID == r.at && e.Offset == len(r.text):
		r.text += e.Delta
	case e.Type == client.End && e.MessageID == r.at && e.Message.Content == r.text:
		r.texts, r.at = append(r.texts, r.text), ""
	case e.Type == client.Compressed: // a long session is summarised meanwhile
	default:
		r.t.Fatalf("after %d bytes of the reply %q came %+v", len(r.text), r.at, e)
	}
}

// reciter returns a model that repeats the message word by word, with a pause before each word.
func reciter(pause time.Duration) stream.Model {
	return modelFunc(func(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
		text := request.Messages[len(request.Messages)-1].Content
		for piece := range strings.SplitAfterSeq(text, " ") {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return stream.Result{}, ctx.Err()
			}
			write([]byte(piece))
		}
		return stream.Result{FinishReason: "stop"}, nil
	})
}

// verse returns a text of n words, with characters of one to four bytes.
func verse(random *rand.Rand, n int) string {
	alphabet := []string{"a", "word", "ß", "né", "日本", "🙂", "\"q\"", "\\", "\u2028", "<b>", "👩‍👩‍👧"}
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d ", alphabet[random.IntN(len(alphabet))], i)
	}
	return b.String()
}

func TestGoClient_CutAnywhere_EachByteReceivedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		p := startPiped(t, reciter(20*time.Millisecond))
		session := p.session()
		watching, watched := p.goClient(t)
		sending, sent := p.goClient(t)
		var mu sync.Mutex
		for _, s := range []*cuttingDialer{watched, sent} {
			s.after = func() int {
				mu.Lock()
				defer mu.Unlock()
				if s.dials.Load()%3 == 0 { // long messages and long terminal frames need a longer connection
					return 15_000 + random.IntN(30_000)
				}
				return 300 + random.IntN(2500) // the handshake takes about 900 bytes
			}
		}
		var want []string
		for i := range 42 {
			want = append(want, verse(random, []int{1, 2, 10, 100, 400, 900}[i%6]))
		}
		seen := &eventCollector{t: t}
		start := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
		var watcher sync.WaitGroup
		watcher.Go(func() {
			for e, err := range watching.Watch(t.Context(), session, start) {
				if err != nil {
					t.Errorf("watching: %v", err)
					return
				}
				if seen.take(e); len(seen.texts) == len(want) {
					return
				}
			}
		})
		answers := &eventCollector{t: t}
		for _, text := range want {
			for e, err := range sending.Send(t.Context(), session, client.NewMessage{Content: text}) {
				if err != nil {
					t.Fatalf("sending: %v", err)
				}
				answers.take(e)
			}
		}
		watcher.Wait()
		if len(p.history(session)) != 2*len(want) || seen.asked != len(want) || answers.asked != 0 {
			t.Errorf("history has %d messages; the watching client saw %d users' messages, the sending client %d", len(p.history(session)), seen.asked, answers.asked)
		}
		for name, got := range map[string][]string{"watching": seen.texts, "sending": answers.texts} {
			if strings.Join(got, "|") != strings.Join(want, "|") {
				t.Errorf("the replies that the %s client got differ from the messages", name)
			}
		}
		t.Logf("cut %d times watching, %d times sending", watched.cuts.Load(), sent.cuts.Load())
		if watched.cuts.Load() < 100 || sent.cuts.Load() < 100 {
			t.Error("too few cuts")
		}
	})
}

func TestGoClient_SwitchesNodes_EachByteReceivedOnce(t *testing.T) {
	t.Parallel()
	a, b := nodes(t, reciter(time.Millisecond))
	session := a.session()
	c, s := a.goClient(t)
	addresses := []string{strings.TrimPrefix(a.url, "http://"), strings.TrimPrefix(b.url, "http://")}
	random := rand.New(rand.NewPCG(5, 6))
	s.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addresses[int(s.dials.Load())%2])
	}
	s.after = func() int {
		if s.dials.Load() > 20 {
			return 0
		}
		if s.dials.Load()%3 == 0 {
			return 15_000 + random.IntN(15_000)
		}
		return 300 + random.IntN(2500)
	}
	want := []string{verse(random, 300), verse(random, 900)}
	got := &eventCollector{t: t}
	for _, text := range want {
		for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: text}) {
			if err != nil {
				t.Fatal(err)
			}
			got.take(e)
		}
	}
	if strings.Join(got.texts, "|") != strings.Join(want, "|") || len(b.history(session)) != 4 || s.cuts.Load() < 8 {
		t.Errorf("%d texts, %d messages, %d cuts", len(got.texts), len(b.history(session)), s.cuts.Load())
	}
}

// refusedWith sends a message and returns the first error, which must be a *client.Error.
func refusedWith(t *testing.T, c *client.Client, session, content string) *client.Error {
	t.Helper()
	for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: content}) {
		refused, ok := errors.AsType[*client.Error](err)
		if !ok {
			t.Fatalf("%+v, %v", e, err)
		}
		return refused
	}
	t.Fatal("the iteration was empty")
	return nil
}

func TestGoClient_RefusedSend_ErrorOfServer(t *testing.T) {
	p := start(t, echo, withTiers(t, `{"pro":{"requestsPerMinute":60}}`))
	session, small := p.session(), p.small(false)
	good, _ := p.goClient(t)
	stranger, _ := p.goClient(t, withKey("svc_live_0123456789abcdefghijklmnopqrstuvwxyz0"))
	keyless, _ := p.goClient(t, withKey(""))
	reader, _ := p.goClient(t, withKey(p.key("default", auth.ReadMessages)))
	for name, test := range map[string]struct {
		client           *client.Client
		session, content string
		code             string
		status           int
	}{
		"401_unknown_key":     {stranger, session, "hello", "invalid_token", 401},
		"no_key":              {keyless, session, "hello", "no_key", 0},
		"403_without_scope":   {reader, session, "hello", "insufficient_scope", 403},
		"404_unknown_session": {good, "session_0000000000000000", "hello", "session_not_found", 404},
		"413_over_the_window": {good, small, strings.Repeat("many words ", 500), "context_overflow", 413},
		"400_empty_content":   {good, session, "", "validation_error", 400},
	} {
		t.Run(name, func(t *testing.T) {
			e := refusedWith(t, test.client, test.session, test.content)
			if e.Code != test.code || e.Status != test.status || e.Message == "" {
				t.Errorf("%+v", e)
			}
			if e.Status == 413 && (e.CurrentTokens <= e.MaxTokens || e.MaxTokens == 0) || e.Status == 400 && e.Field != "content" {
				t.Errorf("%+v", e)
			}
		})
	}
	t.Run("429_with_retry_after", func(t *testing.T) {
		for range 60 {
			p.call("GET", "/v1/sessions", nil)
		}
		for name, e := range map[string]*client.Error{"on the open socket": refusedWith(t, good, session, "hello"), "over REST": restError(t, good)} {
			if e.Code != "rate_limit_exceeded" || e.Status != 429 || e.RateLimit != "requestsPerMinute" || e.RetryAfter < time.Second || e.RetryAfter > 61*time.Second {
				t.Errorf("%s: %+v", name, e)
			}
		}
		fresh, _ := p.goClient(t)
		if e := refusedWith(t, fresh, session, "hello"); e.Code != "rate_limit_exceeded" || e.Status != 429 || e.RetryAfter < time.Second {
			t.Errorf("in the handshake: %+v", e)
		}
	})
}

func restError(t *testing.T, c *client.Client) *client.Error {
	t.Helper()
	e, ok := errors.AsType[*client.Error](c.Do(t.Context(), "GET", "/sessions", nil, nil))
	if !ok {
		t.Fatal("the request was not refused")
	}
	return e
}
