package transport

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a connection in memory whose peer has a chosen address.
type pipe struct {
	net.Conn
	peer net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.peer }

// host is an HTTP server on a network in memory, so that a test can run in a synctest bubble.
type host struct {
	*Connections
	t      *testing.T
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHost(t *testing.T, options Options, handler http.HandlerFunc) *host {
	h := &host{Connections: New(options), t: t, conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	h.Configure(server)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(h.Listener(h)) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return h
}

// Accept implements net.Listener.
func (h *host) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *host) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *host) Addr() net.Addr { return &net.UnixAddr{Name: "parley"} }

// dial opens a connection from an address.
func (h *host) dial(from string) net.Conn {
	h.t.Helper()
	client, server := net.Pipe()
	h.t.Cleanup(func() { _ = client.Close() })
	h.conns <- pipe{server, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 40000))}
	return client
}

// get makes a request on a connection and returns the status of the response; 0 if the server has closed the connection. If
// forwarded is "", the request has no X-Forwarded-For.
func get(c net.Conn, forwarded string) int {
	request := "GET / HTTP/1.1\r\nHost: parley\r\n"
	if forwarded != "" {
		request += "X-Forwarded-For: " + forwarded + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return 0
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

// admitting returns a handler that refuses the requests that c refuses, as package server does.
func admitting(c **host) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := (*c).Admit(r); err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
}

func proxies(t *testing.T, list ...string) []netip.Prefix {
	t.Helper()
	parsed, err := ParseProxies(list)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
