package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/store/redis/redistest"
)

// open opens a WebSocket with the key. It returns the socket, or nil if the server refuses the handshake, and the status.
func (p *process) open() (*websocket.Conn, int) {
	p.t.Helper()
	return p.openWith(func() (query string, header http.Header) {
		return "", http.Header{"Authorization": {"Bearer " + p.key}}
	})
}

// openWith is like open, with other credentials. It calls credentials for each handshake, because a ticket works once. It repeats
// a handshake that gets 503, as clients do: on a busy machine, the store may respond too late. The socket stays open until the
// test ends or closes it.
func (p *process) openWith(credentials func() (query string, header http.Header)) (*websocket.Conn, int) {
	p.t.Helper()
	for late := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		query, header := credentials()
		conn, response, err := websocket.Dial(p.t.Context(), p.url+"/v1/stream"+query, &websocket.DialOptions{
			Subprotocols: []string{"parley.v1"}, HTTPHeader: header, HTTPClient: client,
		})
		switch {
		case err == nil:
			p.t.Cleanup(func() { _ = conn.CloseNow() })
			return conn, response.StatusCode
		case response == nil:
			p.t.Fatal(err)
		case response.StatusCode != http.StatusServiceUnavailable || time.Now().After(late):
			return nil, response.StatusCode
		}
	}
}

// TestNodes_KilledWithOpenSockets_PlacesFreeAfterLease opens all sockets of an account on one node, and kills the node.
func TestNodes_KilledWithOpenSockets_PlacesFreeAfterLease(t *testing.T) {
	t.Parallel()
	dir, env := t.TempDir(), []string{
		"PARLEY_STORE=" + redistest.Single(t).URL + redistest.Patient, "PARLEY_ADMIN_KEY=" + declaredKey,
		`PARLEY_TIERS={"pro":{"sockets":2,"requestsPerMinute":1000000}}`,
	}
	a, b := serveIn(t, dir, env...), serveIn(t, dir, env...)
	for range 2 {
		if _, status := a.open(); status != http.StatusSwitchingProtocols {
			t.Fatalf("a handshake gets %d", status)
		}
	}
	if _, status := b.open(); status != http.StatusTooManyRequests {
		t.Fatalf("with all sockets of the account open, a handshake on the other node gets %d, want 429", status)
	}
	a.kill()
	killed := time.Now()
	eventually(t, "the sockets of the killed node still count", func() bool {
		_, status := b.open()
		return status == http.StatusSwitchingProtocols
	})
	took := time.Since(killed)
	t.Logf("the sockets stopped counting %v after the node was killed", took)
	if most := 2 * auth.SocketLease; took > most { // half of the time is for a busy machine
		t.Errorf("the sockets stopped counting after %v, want at most %v", took, most)
	}
}
