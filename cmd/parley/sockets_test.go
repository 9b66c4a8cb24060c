package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/store/redis/redistest"
)

// open opens a socket, and returns the status of the handshake. It repeats a handshake that gets 503, as clients do: on a busy
// machine, the store may respond too late. The socket stays open until the test ends.
func (p *process) open() int {
	p.t.Helper()
	for late := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		if status := p.handshake(); status != http.StatusServiceUnavailable || time.Now().After(late) {
			return status
		}
	}
}

// handshake is like open, but does not repeat.
func (p *process) handshake() int {
	p.t.Helper()
	conn, response, err := websocket.Dial(p.t.Context(), p.url+"/v1/stream", &websocket.DialOptions{
		Subprotocols: []string{"parley.v1"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + p.key}},
	})
	if err == nil {
		p.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	if response == nil {
		p.t.Fatal(err)
	}
	return response.StatusCode
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
		if status := a.open(); status != http.StatusSwitchingProtocols {
			t.Fatalf("a handshake gets %d", status)
		}
	}
	if status := b.open(); status != http.StatusTooManyRequests {
		t.Fatalf("with all sockets of the account open, a handshake on the other node gets %d, want 429", status)
	}
	a.kill()
	killed := time.Now()
	eventually(t, "the sockets of the killed node still count", func() bool { return b.open() == http.StatusSwitchingProtocols })
	took := time.Since(killed)
	t.Logf("the sockets stopped counting %v after the node was killed", took)
	if most := auth.SocketLease + 10*time.Second; took > most { // 10 s for a busy machine
		t.Errorf("the sockets stopped counting after %v, want at most %v", took, most)
	}
}
