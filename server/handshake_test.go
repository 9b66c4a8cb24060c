package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation/service"
	"parley/server"
)

// upgrade returns the headers of a valid handshake followed by changes, as alternating names and values. An empty value removes
// the header.
func upgrade(changes ...string) []string {
	return append([]string{
		"Connection", "keep-alive, Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol", "parley.v1",
	}, changes...)
}

func TestHandshake_HeadersAndOrigin(t *testing.T) {
	p := start(t, echo, func(o *server.Options, _ *service.Options) { o.Origins = []string{"https://chat.example.com"} })
	session := p.session()
	bad := refusals{}
	refuse := func(name string, status int, code, field string, changes ...string) {
		bad[name] = refused{"GET", "/v1/stream", nil, upgrade(changes...), status, code, field}
	}
	refuse("401_no_key", 401, "invalid_token", "", "Authorization", "")
	refuse("401_unknown_key", 401, "invalid_token", "", "Authorization", "Bearer "+auth.NewSecret("live"))
	refuse("401_malformed_ticket", 401, "invalid_token", "", "Authorization", "", "Sec-WebSocket-Protocol", "parley.v1, ticket.x")
	refuse("403_foreign_origin", 403, "origin_not_allowed", "", "Origin", "https://evil.example")
	refuse("403_http_page_of_https_site", 403, "origin_not_allowed", "", "Origin", p.url, "X-Forwarded-Proto", "https")
	refuse("403_origin_with_other_scheme", 403, "origin_not_allowed", "", "Origin", "chrome-extension"+strings.TrimPrefix(p.url, "http"))
	refuse("403_null_origin", 403, "origin_not_allowed", "", "Origin", "null")
	refuse("403_origin_with_allowed_prefix", 403, "origin_not_allowed", "", "Origin", "https://chat.example.com.evil.example")
	refuse("426_no_upgrade", 426, "validation_error", "Upgrade", "Upgrade", "", "Connection", "")
	refuse("426_connection_not_upgraded", 426, "validation_error", "Upgrade", "Connection", "keep-alive")
	refuse("426_upgrade_to_h2c", 426, "validation_error", "Upgrade", "Upgrade", "h2c")
	refuse("400_wrong_version", 400, "validation_error", "Sec-WebSocket-Version", "Sec-WebSocket-Version", "8")
	refuse("400_wrong_subprotocol", 400, "validation_error", "Sec-WebSocket-Protocol", "Sec-WebSocket-Protocol", "parley.v2, chat")
	refuse("400_no_websocket_key", 400, "validation_error", "Sec-WebSocket-Key", "Sec-WebSocket-Key", "")
	refuse("400_websocket_key_malformed", 400, "validation_error", "Sec-WebSocket-Key", "Sec-WebSocket-Key", "short")
	bad.run(t, p, session)
	t.Run("426_has_header_upgrade", func(t *testing.T) {
		if a := p.call("GET", "/v1/stream", nil); a.status != 426 || a.header.Get("Upgrade") != "websocket" {
			t.Errorf("%d %v", a.status, a.header)
		}
	})
	for name, origin := range map[string]string{
		"our_own": p.url, "our_own_over_https": "https" + strings.TrimPrefix(p.url, "http"), "configured": "https://chat.example.com", "none": "",
	} {
		t.Run("101_origin_"+name, func(t *testing.T) {
			header := http.Header{"Authorization": {"Bearer " + adminKey}}
			if origin != "" {
				header.Set("Origin", origin)
			}
			s, err := p.tryDial(p.url, websocket.DialOptions{HTTPHeader: header})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.conn.CloseNow() }()
			if f := s.next("welcome"); f.Protocol != "parley.v1" || f.HeartbeatSeconds != 25 || f.ConnectionID == "" {
				t.Errorf("welcome is %+v", f)
			}
		})
	}
	p.handler.BeginDrain()
	a := p.call("GET", "/v1/stream", nil, upgrade()...)
	checkError(t, a, 503, "service_unavailable", "", "retryAfter")
}

// byTicket opens a socket with a ticket and without a key. The ticket is a subprotocol or a query parameter.
func (p *parley) byTicket(ticket string, inQuery bool) (*socket, error) {
	url, options := p.url, websocket.DialOptions{HTTPHeader: http.Header{}}
	if inQuery {
		url += "?ticket=" + ticket
	} else {
		options.Subprotocols = []string{"parley.v1", "ticket." + ticket}
	}
	s, err := p.tryDial(url, options)
	if err == nil {
		p.t.Cleanup(func() { _ = s.conn.CloseNow() })
		s.next("welcome")
	}
	return s, err
}

func (p *parley) ticket(body any) string {
	p.t.Helper()
	return p.must("POST", "/v1/stream/tickets", body)["ticket"].(string)
}

func checkRefusal(t *testing.T, err error, status int) {
	t.Helper()
	r, ok := errors.AsType[*refusal](err)
	if !ok || r.StatusCode != status {
		t.Errorf("got %v, want %d", err, status)
	}
}

func TestTickets_AcceptedOnceElse401(t *testing.T) {
	p := start(t, echo)
	session, other := p.session(), p.session()
	for name, inQuery := range map[string]bool{"as_subprotocol": false, "in_query": true} {
		t.Run("101_"+name+"_only_once", func(t *testing.T) {
			ticket := p.ticket(nil)
			s, err := p.byTicket(ticket, inQuery)
			if err != nil {
				t.Fatal(err)
			}
			s.mustSubscribe(session, "")
			s.mustSubscribe(other, "")
			for _, again := range []bool{false, true} {
				_, err := p.byTicket(ticket, again)
				checkRefusal(t, err, 401)
			}
		})
	}
	t.Run("401_forged", func(t *testing.T) {
		ticket := p.ticket(nil)
		swap := map[byte]string{'A': "B"}[ticket[5]]
		if swap == "" {
			swap = "A"
		}
		_, err := p.byTicket(ticket[:5]+swap+ticket[6:], false)
		checkRefusal(t, err, 401)
	})
	t.Run("404_session_outside_the_ticket", func(t *testing.T) {
		for name, ticket := range map[string]string{
			"ticket for a session": p.ticket(map[string]any{"sessionId": session}),
			"ticket of a send":     p.begin(session, "hello")["stream"].(map[string]any)["ticket"].(string),
		} {
			s, err := p.byTicket(ticket, false)
			if err != nil {
				t.Fatal(name, err)
			}
			for _, kind := range []string{"subscribe", "send", "cancel"} {
				request := map[string]any{"type": kind, "id": "1", "sessionId": other}
				switch kind {
				case "send":
					request["content"] = "x"
				case "cancel":
					request["messageId"] = noMessage
				}
				s.must(request)
				if f := s.next("error"); f.code != "session_not_found" {
					t.Errorf("%s, %s: %+v", name, kind, f)
				}
			}
			s.mustSubscribe(session, "")
		}
		if len(p.history(other)) != 0 {
			t.Error("a ticket for another session sent a message")
		}
	})
	t.Run("403_without_the_scope", func(t *testing.T) {
		reader := "Bearer " + p.key("reader", auth.ReadMessages, auth.WriteSessions)
		a := p.call("POST", "/v1/stream/tickets", nil, "Authorization", reader)
		theirs := p.call("POST", "/v1/sessions", `{"userId":"`+user+`"}`, "Authorization", reader).body["sessionId"].(string)
		s, err := p.byTicket(a.body["ticket"].(string), false)
		if err != nil {
			t.Fatal(err)
		}
		s.must(map[string]any{"type": "send", "id": "1", "sessionId": theirs, "content": "x"})
		if f := s.next("error"); f.code != "insufficient_scope" || f.ReplyTo != "1" {
			t.Errorf("%+v", f)
		}
		s.mustSubscribe(theirs, "")
		if f, _ := s.subscribe(session, ""); f.code != "session_not_found" {
			t.Errorf("another account's session: %+v", f)
		}
	})
}

func TestTicket_After30Seconds_401(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		first, second := p.ticket(nil), p.ticket(nil)
		time.Sleep(30*time.Second - time.Millisecond)
		s, err := p.byTicket(first, false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		_, err = p.byTicket(second, false)
		checkRefusal(t, err, 401)
		_ = s.conn.CloseNow()
	})
}

func TestLog_HasNoSecrets(t *testing.T) {
	var log logged // the server still writes while the test reads
	p := start(t, echo, logTo(&log))
	ticket := p.ticket(nil)
	if _, err := p.byTicket(ticket, true); err != nil {
		t.Fatal(err)
	}
	_, err := p.byTicket(ticket, true)
	checkRefusal(t, err, 401)
	p.call("GET", "/v1/stream?ticket="+ticket, nil, upgrade("Authorization", "", "Sec-WebSocket-Version", "1")...)
	p.call("GET", "/v1/sessions?limit=secret", nil)
	p.send(p.session(), "a private word")
	for _, secret := range []string{ticket, adminKey, "secret", "private"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log contains %q: %s", secret, log.String())
		}
	}
}
