package transport

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"parley/server/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipe is a connection in memory. The test chooses the address of its peer.
type pipe struct {
	net.Conn
	peer net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.peer }

// host is an HTTP server on a network in memory, so that a test can run in a synctest bubble.
type host struct {
	*Connections
	t       *testing.T
	network *transporttest.Listener
}

func newHost(t *testing.T, options Options, handler http.HandlerFunc) *host {
	h := &host{Connections: New(options), t: t, network: transporttest.Listen()}
	server := &http.Server{Handler: handler}
	h.Configure(server)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(h.Listener(h.network)) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return h
}

// dial opens a connection from an address.
func (h *host) dial(from string) net.Conn {
	h.t.Helper()
	client, err := h.network.Dial(h.t.Context(), func(server net.Conn) net.Conn {
		return pipe{server, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 40000))}
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = client.Close() })
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
