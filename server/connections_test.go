package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
	"parley/server/transport"
)

// withConnections returns an option that limits the connections. Loopback addresses are trusted proxies if behindProxy is set.
func withConnections(t *testing.T, limits transport.Options, behindProxy bool) option {
	t.Helper()
	if behindProxy {
		proxies, err := transport.ParseProxies([]string{"127.0.0.0/8"})
		if err != nil {
			t.Fatal(err)
		}
		limits.Proxies = proxies
	}
	return func(o *server.Options, _ *service.Options) { o.Connections = transport.New(limits) }
}

func TestLimits_FailedAuthentication_CountedByClientOfProxy(t *testing.T) {
	for name, behindProxy := range map[string]bool{"trusted proxy": true, "no trusted proxy": false} {
		t.Run(name, func(t *testing.T) {
			p := start(t, echo, withTiers(t, ""), withConnections(t, transport.Options{}, behindProxy))
			status := func(from string) int {
				return p.call("GET", "/v1/sessions", nil, "Authorization", "Bearer svc_live_wrong", "X-Forwarded-For", from).status
			}
			for range 30 {
				status("192.0.2.1")
			}
			other := map[bool]int{true: 401, false: 429}[behindProxy] // without a proxy, anybody can send the header
			if a, b := status("192.0.2.1"), status("192.0.2.2"); a != 429 || b != other {
				t.Errorf("after 30 failures, the client gets %d and another client gets %d, want 429 and %d", a, b, other)
			}
			if a := p.call("GET", "/v1/sessions", nil, "X-Forwarded-For", "192.0.2.1"); a.status != 200 {
				t.Errorf("a valid key gets %d", a.status)
			}
		})
	}
}

func TestConnections_ServerFull_503WithReason(t *testing.T) {
	p := start(t, echo, withConnections(t, transport.Options{Max: 1}, false))
	held, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for late := time.Now().Add(testTimeout); p.handler.Connections.Open() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the server has not accepted the connection")
		}
	}
	a := p.call("GET", "/v1/sessions", nil)
	checkError(t, a, 503, "service_unavailable", "", "retryAfter")
	if a.header.Get("Retry-After") == "" || a.header.Get("X-RateLimit-Limit") == "" || !strings.Contains(a.raw, "The server has too many connections.") {
		t.Errorf("503 with %v %s", a.header, a.raw)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		p.client.CloseIdleConnections()
		if a := p.call("GET", path, nil); a.status != 200 {
			t.Errorf("%s: %d", path, a.status)
		} else if path == "/metrics" && !strings.Contains(a.raw, "parley_connections 1\n") {
			t.Errorf("/metrics does not show one connection")
		}
	}
}

func TestConnections_ClientFullOfSockets_503UntilOneCloses(t *testing.T) {
	p := start(t, echo, withConnections(t, transport.Options{MaxPerClient: 2}, true))
	dial := func(from string) (*socket, error) {
		header := http.Header{"Authorization": {"Bearer " + adminKey}, "X-Forwarded-For": {from}}
		s, err := p.tryDial(p.url, websocket.DialOptions{HTTPHeader: header})
		if err == nil {
			t.Cleanup(func() { _ = s.conn.CloseNow() })
			s.next("welcome")
		}
		return s, err
	}
	must := func(from string) *socket {
		s, err := dial(from)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		return s
	}
	first := must("192.0.2.1")
	must("192.0.2.1")
	_, err := dial("192.0.2.1")
	checkRefusal(t, err, 503)
	must("192.0.2.2")
	a := p.call("GET", "/v1/sessions", nil, "X-Forwarded-For", "203.0.113.9, 192.0.2.1")
	checkError(t, a, 503, "service_unavailable", "", "retryAfter")
	if !strings.Contains(a.raw, "Your address has too many connections") {
		t.Errorf("503 with %s", a.raw)
	}
	_ = first.conn.Close(websocket.StatusNormalClosure, "")
	for late := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) { // the server removes the socket shortly after
		if _, err = dial("192.0.2.1"); err == nil {
			break
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
}

func TestResponses_SecurityHeaders_OnEveryResponse(t *testing.T) {
	p := start(t, echo)
	for name, request := range map[string][]string{
		"data": {"GET", "/v1/sessions"}, "error": {"GET", "/v1/sessions/x"}, "no key": {"GET", "/v1/keys", "Authorization", ""},
		"wrong method": {"PUT", "/v1/sessions"}, "no route": {"GET", "/nothing"}, "no route, as a page": {"GET", "/nothing", "Accept", "text/html"},
		"health": {"GET", "/healthz"}, "metrics": {"GET", "/metrics"}, "openapi": {"GET", "/openapi.yaml"}, "asyncapi": {"GET", "/asyncapi.yaml"},
		"docs": {"GET", "/docs"},
	} {
		a := p.call(request[0], request[1], nil, request[2:]...)
		if policy := a.header.Get("Content-Security-Policy"); a.header.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(policy, "default-src") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("%s: %d with %v", name, a.status, a.header)
		}
	}
}

func TestSend_PublicURL_UsedInStreamURL(t *testing.T) {
	for name, test := range map[string]struct{ public, want string }{
		"public URL": {"https://chat.example.com", "wss://chat.example.com/v1/stream"},
		"none":       {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, echo, func(o *server.Options, _ *service.Options) { o.PublicURL = test.public })
			want := test.want
			if want == "" {
				want = "ws" + strings.TrimPrefix(p.url, "http") + "/v1/stream"
			}
			if got := p.begin(p.session(), "hello")["stream"].(map[string]any)["url"]; got != want {
				t.Errorf("the URL is %v, want %s", got, want)
			}
			if s, err := p.tryDial(p.url, websocket.DialOptions{HTTPHeader: http.Header{
				"Authorization": {"Bearer " + adminKey}, "Origin": {"https://chat.example.com"},
			}}); (err == nil) != (test.public != "") {
				t.Errorf("a socket from the origin of the public URL: %v", err)
			} else if err == nil {
				_ = s.conn.CloseNow()
			}
		})
	}
}

// Each client requests a page of 1 MB and does not read it.
func TestResponses_Unread_BoundedPerAccount(t *testing.T) {
	p := start(t, echo)
	session := p.windowed(1_000_000, "fifo")
	for range 20 {
		p.send(session, strings.Repeat("\u20ac", 9_990)) // 30 KB, and the reply has the same size
	}
	other := p.key("other", auth.ReadMessages, auth.ReadSessions)
	path := "/v1/sessions/" + session + "/messages?limit=100"
	unread := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer "+adminKey+"\r\n\r\n")
		return c
	}
	var clients []net.Conn
	for range 9 {
		clients = append(clients, unread())
	}
	a := p.call("GET", path, nil)
	for late := time.Now().Add(testTimeout); a.status != 503; a = p.call("GET", path, nil) {
		if time.Now().After(late) || len(clients) > 40 {
			t.Fatalf("no refusal with %d unread responses", len(clients))
		}
		clients = append(clients, unread())
	}
	checkError(t, a, 503, "service_unavailable", "", "retryAfter")
	if len(clients) < 10 {
		t.Errorf("refused with %d unread responses, want at least 10", len(clients))
	}
	if a := p.call("GET", "/v1/sessions/"+session, nil); a.status != 200 {
		t.Errorf("a small response: %d", a.status)
	}
	if a := p.call("GET", "/v1/sessions", nil, "Authorization", "Bearer "+other); a.status != 200 {
		t.Errorf("another account: %d", a.status)
	}
	for _, c := range clients {
		_ = c.Close()
	}
	for late := time.Now().Add(testTimeout); ; time.Sleep(10 * time.Millisecond) {
		if a := p.call("GET", path, nil); a.status == 200 {
			break
		}
		if time.Now().After(late) {
			t.Fatal("still refused after the clients have left")
		}
	}
}

// slowPages is a store that reads messages only when a test lets it.
type slowPages struct {
	conversation.Store
	reading chan struct{} // receives a value for each call that waits
	read    chan struct{} // closed when the calls may read
}

func (s slowPages) Messages(ctx context.Context, owner conversation.Owner, session string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	if owner.Account == "busy" {
		s.reading <- struct{}{}
		<-s.read
	}
	return s.Store.Messages(ctx, owner, session, query)
}

func TestHistory_ManyPagesAtOnce_OtherAccountsServed(t *testing.T) {
	t.Parallel()
	const builds = 8 // the documented number of pages that the server builds for one account at the same time
	slow := slowPages{reading: make(chan struct{}, 2*builds), read: make(chan struct{})}
	p := start(t, echo, withStore(func(s conversation.Store) conversation.Store { slow.Store = s; return slow }))
	pages := func(account string) <-chan answer {
		bearer := []string{"Authorization", "Bearer " + p.key(account, auth.ReadMessages, auth.WriteSessions)}
		session := p.call("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"}, bearer...).body["sessionId"].(string)
		return p.later("GET", messages(session), nil, bearer...)
	}
	var held []<-chan answer
	for range builds {
		held = append(held, pages("busy"))
		within(t, "a page that is being built", slow.reading)
	}
	// The accounts are divided at random into 64 groups, each with its own limit. The four other accounts are almost never all
	// in the group of the busy account.
	others := make(chan answer, 4)
	for i := range cap(others) {
		go func(page <-chan answer) { others <- <-page }(pages(fmt.Sprint("other", i)))
	}
	if a := within(t, "a page of another account", others); a.status != 200 {
		t.Errorf("another account: %d %s", a.status, a.raw)
	}
	checkError(t, within(t, "the page above the limit", pages("busy")), 503, "service_unavailable", "", "retryAfter")
	close(slow.read)
	for _, page := range append(held, pages("busy")) {
		if a := within(t, "a held page", page); a.status != 200 {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
}
