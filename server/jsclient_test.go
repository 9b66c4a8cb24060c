package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/stream"
)

// cutProxy is a proxy that reaches the server through a cuttingDialer, which cuts the connections.
type cutProxy struct {
	*cuttingDialer
	address  string
	listener net.Listener
	work     sync.WaitGroup
	// lose is the direction in which the proxy drops the next bytes and then cuts the connection: "request" means to the server,
	// "response" means to the client, and "" means neither.
	lose atomic.Pointer[string]
	lost atomic.Int32
}

// newCutProxy returns a proxy. For each connection, the function after returns the number of bytes before the cut. If after is
// nil or returns 0, the proxy does not cut the connection.
func (p *parley) newCutProxy(t *testing.T, after func() int) *cutProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &cutProxy{cuttingDialer: &cuttingDialer{dial: p.dialNet, after: after}, address: listener.Addr().String(), listener: listener}
	f.lose.Store(new(string))
	f.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				f.work.Go(func() { f.carry(conn, strings.TrimPrefix(p.url, "http://")) })
			}
		}
	})
	t.Cleanup(func() { _ = listener.Close(); f.work.Wait() })
	return f
}

// carry copies bytes between a client's connection and a new connection to the server, until one of the two ends.
func (f *cutProxy) carry(near net.Conn, server string) {
	defer near.Close()
	far, err := f.dialContext(context.Background(), "tcp", server)
	if err != nil {
		return
	}
	defer far.Close()
	f.work.Go(func() {
		_, _ = io.Copy(far, &oneWay{near, f, "request"})
		_ = far.Close()
	})
	_, _ = io.Copy(near, &oneWay{far, f, "response"})
}

// oneWay is one direction of a proxied connection.
type oneWay struct {
	net.Conn
	by  *cutProxy
	way string
}

// Read implements io.Reader.
func (l *oneWay) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if way := l.by.lose.Load(); n > 0 && *way == l.way && l.by.lose.CompareAndSwap(way, new(string)) {
		l.by.lost.Add(1)
		_ = l.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// holding returns a model that replies like the model other. But a reply to a message that begins with "hold " ends only when
// that reply is cancelled.
func holding(other stream.Model) stream.Model {
	return modelFunc(func(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
		result, err := other.Generate(ctx, request, write)
		if err == nil && strings.HasPrefix(request.Messages[len(request.Messages)-1].Content, "hold ") {
			<-ctx.Done()
			return stream.Result{}, ctx.Err()
		}
		return result, err
	})
}

// jsConversation is a task for testdata/jsclient.mjs: to send texts over one proxy, and to watch the session over another.
type jsConversation struct {
	Session string   `json:"session"`
	Sender  string   `json:"sender"`  // address of the proxy of the client that sends
	Watcher string   `json:"watcher"` // address of the proxy of the client that watches
	Texts   []string `json:"texts"`
}

// jsLossTask is a task for testdata/jsclient.mjs: to send messages and to cancel the replies, while a proxy loses bytes.
type jsLossTask struct {
	Session string   `json:"session"`
	Proxy   string   `json:"proxy"`  // address of the proxy
	Losses  []string `json:"losses"` // values for cutProxy.lose, one for each message
}

// jsTasks is the input of testdata/jsclient.mjs, which runs the tasks that are set.
type jsTasks struct {
	URL           string           `json:"url"`
	Key           string           `json:"key"`
	Conversations []jsConversation `json:"conversations,omitempty"`
	LossTask      *jsLossTask      `json:"lossTask,omitempty"`
	RepeatSession string           `json:"repeatSession,omitempty"` // the session of a task that repeats sends
}

// largeSession creates a session with a context window of 1,000,000 tokens, which the tests do not fill.
func (p *parley) largeSession() string {
	p.t.Helper()
	wanted := map[string]any{"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"maxTokens": 1_000_000}}
	return p.must("POST", "/v1/sessions", wanted)["sessionId"].(string)
}

func TestJSClient_CutAnywhere_EachByteReceivedOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	p := start(t, holding(reciter(2*time.Millisecond)))
	var proxies []*cutProxy
	newProxy := func() string {
		own := rand.New(rand.NewPCG(9, uint64(len(proxies))))
		count := 0 // number of connections; guarded by the dialer's mutex
		f := p.newCutProxy(t, func() int {
			if count++; count%3 == 0 { // long messages and long terminal frames need a longer connection
				return 15_000 + own.IntN(30_000)
			}
			return 300 + own.IntN(2500) // the handshake takes about 900 bytes
		})
		proxies = append(proxies, f)
		return f.address
	}
	var conversations []jsConversation
	for range 4 {
		c := jsConversation{Session: p.largeSession(), Sender: newProxy(), Watcher: newProxy()}
		for i := range 12 {
			text := verse(random, []int{1, 10, 100, 400}[i%4])
			if i%3 == 1 {
				text = "hold " + text
			}
			c.Texts = append(c.Texts, text)
		}
		conversations = append(conversations, c)
	}
	lossProxy := p.newCutProxy(t, nil)
	lossTask := jsLossTask{Session: p.largeSession(), Proxy: lossProxy.address}
	for range 5 {
		lossTask.Losses = append(lossTask.Losses, "request", "response")
	}
	p.runJSClient(t, lossProxy, jsTasks{Conversations: conversations, LossTask: &lossTask})

	cuts := 0
	for _, f := range proxies {
		cuts += int(f.cuts.Load())
	}
	for _, c := range conversations {
		p.wantExchanges(t, c.Session, c.Texts)
	}
	if n := len(p.history(lossTask.Session)); n != 2*(1+len(lossTask.Losses)) {
		t.Errorf("%d messages were sent; the history has %d messages and replies", 1+len(lossTask.Losses), n)
	}
	t.Logf("%d cuts over %d proxies; %d lost requests and responses", cuts, len(proxies), lossProxy.lost.Load())
	if cuts < 100 || int(lossProxy.lost.Load()) != 2*len(lossTask.Losses) {
		t.Error("too few cuts or losses")
	}
}

func TestJSClient_SendRepeated_YieldsWholeReply(t *testing.T) {
	t.Parallel()
	p := start(t, holding(reciter(time.Millisecond)))
	p.runJSClient(t, nil, jsTasks{RepeatSession: p.largeSession()})
}

// runJSClient runs testdata/jsclient.mjs until it exits. When the script prints a value for lossProxy.lose, runJSClient sets the
// value.
func (p *parley) runJSClient(t *testing.T, lossProxy *cutProxy, tasks jsTasks) {
	t.Helper()
	requireCommand(t, "node", "nodejs")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	const script = "testdata/jsclient.mjs"
	if _, err := os.Stat(script); err != nil { // so that go test repeats the test if the script has changed
		t.Fatal(err)
	}
	command := exec.CommandContext(ctx, "node", "--experimental-websocket", "--no-warnings", script)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	command.Stderr = &stderr
	tasks.URL, tasks.Key = p.url, adminKey
	input, err := json.Marshal(tasks)
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write(append(input, '\n'))
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what := lines.Text()
		lossProxy.lose.Store(&what)
		_, _ = fmt.Fprintf(in, "%q\n", what)
	}
	if err := command.Wait(); err != nil || stderr.Len() > 0 {
		t.Fatalf("jsclient.mjs: %v\n%s", err, &stderr)
	}
}

// wantExchanges checks that a session has exactly these messages, and that each reply repeats the message. Replies to "hold "
// messages must be cancelled.
func (p *parley) wantExchanges(t *testing.T, session string, texts []string) {
	t.Helper()
	history := p.history(session)
	if len(history) != 2*len(texts) {
		t.Fatalf("%d messages, want %d", len(history), 2*len(texts))
	}
	for i, text := range texts {
		status := "completed"
		if strings.HasPrefix(text, "hold ") {
			status = "cancelled"
		}
		if asked, reply := history[2*i], history[2*i+1]; asked.Content != text || reply.Content != text || reply.Status != status {
			t.Errorf("message %d is %q and its reply (%s) %q, want %q", i, asked.Content, reply.Status, reply.Content, text)
		}
	}
}
