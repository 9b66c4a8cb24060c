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

// wire is a stretch of network between a browser and a server, which can be cut. The server may change behind it.
type wire struct {
	url      string // where the browser finds the server
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex
	server string                 // guarded by mu; "" while there is none
	conns  map[io.Closer]struct{} // guarded by mu
	rough  *rand.Rand             // guarded by mu; if set, every connection is cut after 3 to 17 kilobytes
	cuts   int                    // guarded by mu; how many connections were cut for that
}

func newWire(t *testing.T, p *process) *wire {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "http://" + listener.Addr().String(), listener: listener, conns: map[io.Closer]struct{}{}}
	w.mend(p)
	w.work.Go(w.accept)
	t.Cleanup(func() { _ = listener.Close(); w.cut(); w.work.Wait() })
	return w
}

func (w *wire) accept() {
	for {
		conn, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			w.work.Go(func() { w.carry(conn) })
		}
	}
}

// carry joins a browser's connection to the server.
func (w *wire) carry(browser net.Conn) {
	defer browser.Close()
	w.mu.Lock()
	address, left := w.server, int64(1<<40)
	if w.rough != nil {
		left = 3000 + w.rough.Int64N(14000)
	}
	w.conns[browser] = struct{}{}
	w.mu.Unlock()
	defer func() { w.mu.Lock(); delete(w.conns, browser); w.mu.Unlock() }()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return // it is cut
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

// cut ends all connections; none is made until it is mended.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = ""
	for conn := range w.conns {
		_ = conn.Close()
	}
}

// mend leads to a server, from now on.
func (w *wire) mend(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server = strings.TrimPrefix(p.url, "http://")
}

// roughen has connections from now on be cut after 3 to 17 kilobytes. The terminal frame, which has the whole
// reply, must fit in that.
func (w *wire) roughen(random *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rough = random
}

// cutOften returns how many connections were cut since the wire is rough.
func (w *wire) cutOften() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}
