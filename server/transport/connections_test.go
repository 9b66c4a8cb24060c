package transport

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

func TestConnections_ServerFull_503UntilOneCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		h = newHost(t, Options{Max: 2}, admitting(&h))
		first := h.dial("192.0.2.1")
		second := h.dial("192.0.2.2")
		if a, b, c := get(first, ""), get(second, ""), get(h.dial("192.0.2.3"), ""); a != 200 || b != 200 || c != 503 {
			t.Errorf("got %d, %d, %d, want 200, 200, 503", a, b, c)
		}
		_ = first.Close()
		synctest.Wait()
		if status := get(h.dial("192.0.2.3"), ""); status != 200 {
			t.Errorf("got %d after a connection was closed", status)
		}
		if n, m := h.Refused(ErrFull), h.Refused(ErrClientFull); n != 1 || m != 0 {
			t.Errorf("%d and %d refusals were counted, want 1 and 0", n, m)
		}
	})
}

func TestConnections_ClientFull_OthersServed(t *testing.T) {
	for name, test := range map[string]struct {
		full, other string
	}{
		"IPv4":                   {"192.0.2.1", "192.0.2.2"},
		"IPv6 in one /64":        {"2001:db8:0:1::%d", "2001:db8:0:2::1"},
		"IPv4 and the same IPv6": {"::ffff:192.0.2.1", "2001:db8::1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h *host
				h = newHost(t, Options{MaxPerClient: 2}, admitting(&h))
				var statuses []int
				for i := range 3 {
					from := test.full
					if i > 0 && from == "2001:db8:0:1::%d" || from == "2001:db8:0:1::%d" {
						from = fmt.Sprintf(from, i+1)
					}
					statuses = append(statuses, get(h.dial(from), ""))
				}
				statuses = append(statuses, get(h.dial(test.other), ""))
				if got := fmt.Sprint(statuses); got != "[200 200 503 200]" {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

func TestConnections_Loopback_HasNoLimitOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		h = newHost(t, Options{MaxPerClient: 1}, admitting(&h))
		for range 5 {
			if status := get(h.dial("127.0.0.1"), ""); status != 200 {
				t.Errorf("got %d", status)
			}
		}
	})
}

func TestConnections_64RefusalsPending_NextClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		h = newHost(t, Options{MaxPerClient: 1}, admitting(&h))
		h.dial("192.0.2.1")
		for range maxRefusals {
			h.dial("192.0.2.1") // waits for its request
		}
		if _, err := h.dial("192.0.2.1").Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the connection above the limit of refusals got %v", err)
		}
		if n := h.Open(); n != 1 {
			t.Errorf("%d connections are open, want 1", n)
		}
	})
}

// Each connection comes from the proxy. A connection counts for the client of its request, until the response is complete.
func TestConnections_ThroughProxy_CountedByRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		entered, leave := make(chan struct{}), make(chan struct{})
		h = newHost(t, Options{MaxPerClient: 2, Proxies: proxies(t, "10.0.0.7")}, func(w http.ResponseWriter, r *http.Request) {
			if err := h.Admit(r); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			if r.Header.Get("X-Forwarded-For") == "192.0.2.1" {
				entered <- struct{}{}
				<-leave
			}
		})
		idle := make([]net.Conn, 5) // idle connections of the proxy count for no client
		for i := range idle {
			idle[i] = h.dial("10.0.0.7")
		}
		done := make(chan int)
		for range 2 {
			go func() { done <- get(h.dial("10.0.0.7"), "192.0.2.1") }()
			<-entered
		}
		if a, b := get(idle[0], "192.0.2.1"), get(idle[0], "192.0.2.2"); a != 503 || b != 200 {
			t.Errorf("with two requests pending: a third one got %d, another client got %d, want 503 and 200", a, b)
		}
		close(leave)
		if a, b := <-done, <-done; a != 200 || b != 200 {
			t.Errorf("the pending requests got %d and %d", a, b)
		}
		synctest.Wait()
		go func() { <-entered }()
		if a := get(idle[1], "192.0.2.1"); a != 200 {
			t.Errorf("after the responses, a request got %d", a)
		}
		synctest.Wait()
		if n := len(h.clients); n != 0 {
			t.Errorf("%d clients are still counted", n)
		}
	})
}

// The connection of a WebSocket is hijacked. It must count for its client until it is closed.
func TestConnections_HijackedThroughProxy_CountsUntilClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		hijacked := make(chan net.Conn, 1)
		h = newHost(t, Options{MaxPerClient: 1, Proxies: proxies(t, "10.0.0.7")}, func(w http.ResponseWriter, r *http.Request) {
			if err := h.Admit(r); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			hijacked <- c
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
		if status := get(h.dial("10.0.0.7"), "192.0.2.1"); status != 200 {
			t.Fatalf("got %d", status)
		}
		if status := get(h.dial("10.0.0.7"), "192.0.2.1"); status != 503 {
			t.Errorf("with the connection open, got %d", status)
		}
		_ = (<-hijacked).Close()
		if status := get(h.dial("10.0.0.7"), "192.0.2.1"); status != 200 {
			t.Errorf("with the connection closed, got %d", status)
		}
		_ = (<-hijacked).Close()
	})
}
