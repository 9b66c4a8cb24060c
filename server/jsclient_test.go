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

// cutProxy is a proxy that cuts its connections through a cuttingDialer.
type cutProxy struct {
	*cuttingDialer
	address  string
	listener net.Listener
	work     sync.WaitGroup
	// lose is the direction in which the proxy drops the next bytes and cuts the connection: "request" to the server, "answer"
	// from it, or "".
	lose atomic.Pointer[string]
	lost atomic.Int32
}

// newCutProxy returns a proxy that cuts each connection after the number of bytes that after returns; 0 means never.
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

// carry copies between a client's connection and the server until one of them ends or is cut.
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
	_, _ = io.Copy(near, &oneWay{far, f, "answer"})
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

// holding returns a model that works like other. But its replies to messages that begin with "hold " do not end by themselves.
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

// jsConversation is a task for testdata/jsclient.mjs: a conversation over two proxies.
type jsConversation struct {
	Session string   `json:"session"`
	Sender  string   `json:"sender"`
	Watcher string   `json:"watcher"`
	Texts   []string `json:"texts"`
}

// jsLossTask is a task for testdata/jsclient.mjs: it tells the proxy which
// bytes to lose next.
type jsLossTask struct {
	Session string   `json:"session"`
	Wire    string   `json:"wire"`
	Losses  []string `json:"losses"`
}

// largeSession creates a session whose context window never gets full.
func (p *parley) largeSession() string {
	p.t.Helper()
	wanted := map[string]any{"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"maxTokens": 1_000_000}}
	return p.must("POST", "/v1/sessions", wanted)["sessionId"].(string)
}

func TestJSClient_CutAnywhere_EachByteOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	p := start(t, holding(reciter(2*time.Millisecond)))
	var wires []*cutProxy
	newWire := func() string {
		own := rand.New(rand.NewPCG(9, uint64(len(wires))))
		count := 0 // guarded by the dialer
		f := p.newCutProxy(t, func() int {
			if count++; count%3 == 0 { // long messages and the end of a long reply need one longer connection
				return 15_000 + own.IntN(30_000)
			}
			return 300 + own.IntN(2500) // the handshake takes some 900
		})
		wires = append(wires, f)
		return f.address
	}
	var conversations []jsConversation
	for range 4 {
		c := jsConversation{Session: p.largeSession(), Sender: newWire(), Watcher: newWire()}
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
	lossTask := jsLossTask{Session: p.largeSession(), Wire: lossProxy.address}
	for range 5 {
		lossTask.Losses = append(lossTask.Losses, "request", "answer")
	}
	p.runJSClient(t, lossProxy, conversations, lossTask)

	cuts := 0
	for _, f := range wires {
		cuts += int(f.cuts.Load())
	}
	for _, c := range conversations {
		p.wantExchanges(t, c.Session, c.Texts)
	}
	if n := len(p.history(lossTask.Session)); n != 2*(1+len(lossTask.Losses)) {
		t.Errorf("%d messages were sent; the history has %d messages and replies", 1+len(lossTask.Losses), n)
	}
	t.Logf("cut %d times anywhere over %d wires, %d times with a send, a cancel or their answers", cuts, len(wires), lossProxy.lost.Load())
	if cuts < 100 || int(lossProxy.lost.Load()) != 2*len(lossTask.Losses) {
		t.Error("too few cuts or losses")
	}
}

// runJSClient runs testdata/jsclient.mjs to its end. lossProxy loses the bytes that the
// script asks it to lose.
func (p *parley) runJSClient(t *testing.T, lossProxy *cutProxy, conversations []jsConversation, lossTask jsLossTask) {
	t.Helper()
	requireCommand(t, "node", "nodejs")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testTimeout)
	defer cancel()
	const script = "testdata/jsclient.mjs"
	if _, err := os.Stat(script); err != nil { // go test then knows that the result depends on the script
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
	task, err := json.Marshal(map[string]any{"url": p.url, "key": adminKey, "conversations": conversations, "losing": lossTask})
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write(append(task, '\n'))
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what := lines.Text()
		lossProxy.lose.Store(&what)
		_, _ = fmt.Fprintf(in, "%q\n", what)
	}
	if err := command.Wait(); err != nil || stderr.Len() > 0 {
		t.Fatalf("the client: %v\n%s", err, &stderr)
	}
}

// wantExchanges checks that a session has each of these messages once, with a reply that repeats it.
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
