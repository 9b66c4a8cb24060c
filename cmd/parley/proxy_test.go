package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
)

// proxy is a TCP proxy between a browser and a server. A test can cut its connections and connect it to another server.
type proxy struct {
	url      string // of the proxy, for the browser
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	server string                 // guarded by mu; HOST:PORT; "" while the proxy refuses connections
	conns  map[io.Closer]struct{} // guarded by mu
	flaky  *rand.Rand             // guarded by mu; if set, each new connection is cut after 3,000 to 17,000 bytes
	cuts   int                    // guarded by mu; number of connections that were cut because of flaky
}

func newProxy(t *testing.T, p *process) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &proxy{url: "http://" + listener.Addr().String(), listener: listener, conns: map[io.Closer]struct{}{}}
	w.connect(p)
	w.work.Go(w.accept)
	t.Cleanup(func() { _ = listener.Close(); w.cut(); w.work.Wait() })
	return w
}

func (w *proxy) accept() {
	for {
		conn, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			w.work.Go(func() { w.forward(conn) })
		}
	}
}

// forward copies data between a browser's connection and a new connection to the server.
func (w *proxy) forward(browser net.Conn) {
	defer browser.Close()
	w.mu.Lock()
	address, left := w.server, int64(1<<40)
	if w.flaky != nil {
		left = 3000 + w.flaky.Int64N(14000)
	}
	w.conns[browser] = struct{}{}
	w.mu.Unlock()
	defer func() { w.mu.Lock(); delete(w.conns, browser); w.mu.Unlock() }()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return // there is no server: the browser's connection is closed
	}
	defer server.Close()
	w.work.Go(func() {
		_, _ = io.Copy(server, browser)
		_ = server.Close()
	})
	if n, _ := io.CopyN(browser, server, left); n == left {
		w.mu.Lock()
		w.cuts++
		w.mu.Unlock()
	}
}

// cut closes all connections. The proxy refuses new connections until connect.
func (w *proxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = ""
	for conn := range w.conns {
		_ = conn.Close()
	}
}

// connect makes the proxy forward new connections to the server p.
func (w *proxy) connect(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = strings.TrimPrefix(p.url, "http://")
}

// makeFlaky makes the proxy cut each new connection after it has forwarded 3,000 to 17,000 bytes to the browser. The terminal
// frame contains the whole reply, so a test needs a reply that is much shorter than 17,000 bytes.
func (w *proxy) makeFlaky(random *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flaky = random
}

// flakyCuts returns the number of connections that were cut because of makeFlaky.
func (w *proxy) flakyCuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}
