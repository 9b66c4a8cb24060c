package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"parley/auth"
)

func TestStrict_InvalidQuery_400(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	reply := p.send(session, "hello")["messageId"].(string)
	bad := refusals{}
	for query, field := range map[string]string{
		"limit=1;order=asc": "query", "%zz": "query", "limit=%": "query", "=1": "query", "%00=1": "query", "%ff=1": "query", strings.Repeat("a", 65): "query",
		"limit=1&limit=1": "limit", "limit=1&%6cimit=2": "limit", "order=asc&order=asc": "order", "cursor=" + noMessage + "&cursor=" + noMessage: "cursor",
		"Limit=1": "Limit", "unknown": "unknown", "limit=1&b=svc_live_secret&a=svc_live_secret": "a", "userId=" + user: "userId",
	} {
		bad["400_history_"+query] = refused{"GET", "/v1/sessions/{id}/messages?" + query, nil, nil, 400, "validation_error", field}
	}
	message := "/v1/sessions/{id}/messages/" + reply
	for _, route := range []string{
		"POST /v1/sessions", "GET /v1/sessions/{id}", "DELETE /v1/sessions/{id}", "POST /v1/sessions/{id}/messages", "DELETE /v1/sessions/{id}/messages",
		"GET " + message, "POST " + message + "/cancel", "GET " + message + "/stream", "POST /v1/stream/tickets", "GET /v1/stream",
		"POST /v1/keys", "GET /v1/keys", "DELETE /v1/keys/key_0123456789abcdef", "POST /v1/keys/key_0123456789abcdef/rotate",
	} {
		method, path, _ := strings.Cut(route, " ")
		bad["400_"+route] = refused{method, path + "?order=asc", nil, nil, 400, "validation_error", "order"}
	}
	bad.run(t, p, session)
	t.Run("400_error_omits_values", func(t *testing.T) {
		if a := p.call("GET", "/v1/sessions?limit=svc_live_secret&x=svc_live_secret", nil); a.status != 400 || strings.Contains(a.raw, "secret") {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
	t.Run("200_empty_query", func(t *testing.T) {
		p.must("GET", "/v1/sessions?", nil)
		p.must("GET", "/v1/sessions?&", nil)
	})
}

// A ticket works once. A handshake that the server refuses because of the query must not use up the ticket.
func TestHandshake_TicketTwiceInQuery_TicketStaysValid(t *testing.T) {
	p := start(t, echo)
	ticket := p.must("POST", "/v1/stream/tickets", nil)["ticket"].(string)
	a := p.call("GET", "/v1/stream?ticket="+ticket+"&ticket="+ticket, nil, "Authorization", "")
	checkError(t, a, 400, "validation_error", "ticket")
	if strings.Contains(a.raw, ticket) {
		t.Error("the error contains the ticket")
	}
	s, err := p.tryDial(p.url+"?ticket="+ticket, websocket.DialOptions{HTTPHeader: http.Header{}})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.conn.CloseNow()
}

func TestStrict_RepeatedHeader_Refused(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	reply := p.send(session, "hello")["messageId"].(string)
	events := "/v1/sessions/{id}/messages/" + reply + "/stream"
	cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
	key, other := "Bearer "+adminKey, "Bearer "+p.key("other", auth.Admin)
	twice := func(name, first, second string) []string { return []string{name, first + "\n" + second} }
	bad := refusals{
		"401_authorization_two_keys":      {"GET", "/v1/sessions", nil, twice("Authorization", key, other), 401, "invalid_token", ""},
		"401_authorization_one_key_twice": {"GET", "/v1/sessions", nil, twice("Authorization", key, key), 401, "invalid_token", ""},
		"401_authorization_of_socket":     {"GET", "/v1/stream", nil, twice("Authorization", key, other), 401, "invalid_token", ""},
		"401_authorization_no_route":      {"GET", "/v1/nothing", nil, twice("Authorization", key, other), 401, "invalid_token", ""},
		"400_content_type":                {"POST", "/v1/sessions", `{}`, twice("Content-Type", "application/json", "text/plain"), 400, "validation_error", "Content-Type"},
		"400_content_encoding":            {"POST", "/v1/sessions", `{}`, twice("Content-Encoding", "br", "gzip"), 400, "validation_error", "Content-Encoding"},
		"400_idempotency_key":             {"POST", "/v1/sessions/{id}/messages", `{"content":"x"}`, twice("Idempotency-Key", "a", "b"), 400, "validation_error", "Idempotency-Key"},
		"400_last_event_id":               {"GET", events, nil, twice("Last-Event-ID", cursor, cursor), 400, "validation_error", "Last-Event-ID"},
		"403_origin":                      {"GET", "/v1/stream", nil, twice("Origin", p.url, "https://evil.example"), 403, "origin_not_allowed", ""},
	}
	bad.run(t, p, session)
}

func TestStrict_EncodedSlashInPath_404(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	reply := p.send(session, "hello")["messageId"].(string)
	refusals{
		"404_in_a_route":     {"GET", "/v1%2fsessions", nil, nil, 404, "not_found", ""},
		"404_upper_case_2F":  {"GET", "/v1%2Fsessions", nil, nil, 404, "not_found", ""},
		"404_at_the_end":     {"GET", "/v1/sessions%2F", nil, nil, 404, "not_found", ""},
		"404_in_an_id":       {"GET", "/v1/sessions/{id}%2F", nil, nil, 404, "session_not_found", ""},
		"404_after_an_id":    {"GET", "/v1/sessions/{id}%2Fmessages", nil, nil, 404, "session_not_found", ""},
		"404_after_dot_dot":  {"DELETE", "/v1/sessions/x%2F..%2F{id}", nil, nil, 404, "session_not_found", ""},
		"404_after_message":  {"GET", "/v1/sessions/{id}/messages/" + reply + "%2Fcancel", nil, nil, 404, "message_not_found", ""},
		"404_before_healthz": {"GET", "/%2Fhealthz", nil, nil, 404, "not_found", ""},
	}.run(t, p, session)
	t.Run("200_another_escape", func(t *testing.T) {
		p.must("GET", "/v1/sessions/"+strings.Replace(session, "_", "%5F", 1), nil)
	})
}

func TestSend_ContentOfSpaces_400(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	bad := refusals{}
	for name, text := range map[string]string{"space": " ", "lines": "\r\n\t\v\f", "no_break_space": "\u00a0", "wide": "\u3000\u2003\u2028\u0085"} {
		bad["400_"+name] = refused{"POST", messages("{id}"), content(text), nil, 400, "validation_error", "content"}
	}
	bad.run(t, p, session)
	s := p.dial()
	s.must(sending("1", session, " \u00a0\n"))
	if f := s.next("error"); f.code != "validation_error" || f.field != "content" {
		t.Errorf("got %+v", f)
	}
	if p.send(session, " \u200b "); p.history(session)[0].Content != " \u200b " {
		t.Error("a zero-width space, which is not white space, was refused or removed")
	}
}

func TestErrors_Messages_SayWhatToDo(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	says := func(name string, a answer, code, hint string) {
		t.Helper()
		text, _ := a.body["error"].(map[string]any)["message"].(string)
		if got, _ := a.body["error"].(map[string]any)["code"].(string); got != code || !strings.Contains(text, hint) {
			t.Errorf("%s: %s, want %s with %q", name, a.raw, code, hint)
		}
	}
	says("401", p.call("GET", "/v1/sessions", nil, "Authorization", "svc_live_mistyped"), "invalid_token", "Authorization: Bearer svc_live_")
	says("415 type", p.call("POST", "/v1/sessions", "{}", "Content-Type", "text/plain"), "unsupported_media_type", "Content-Type")
	says("415 compressed", p.call("POST", "/v1/sessions", "{}", "Content-Encoding", "gzip"), "unsupported_media_type", "compressed")
	p.handler.BeginDrain()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p.drain(now)
	says("503", p.call("POST", messages(session), content("x")), "service_unavailable", "restarting")
	says("503 of a handshake", p.call("GET", "/v1/stream", nil, upgrade()...), "service_unavailable", "restarting")
	says("503 of readiness", p.call("GET", "/readyz", nil), "service_unavailable", "restarting")
}

// serveNotifying serves p on another address. Whenever the context of a request to that address ends, the channel gets a value.
func (p *parley) serveNotifying(t *testing.T) (address string, ended <-chan struct{}) {
	ends := make(chan struct{}, 100)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop := context.AfterFunc(r.Context(), func() { ends <- struct{}{} })
		defer stop()
		p.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.Listener.Addr().String(), ends
}

// sendOverTCP sends a message over a new connection. It returns the connection, so that the caller can close the sending side.
func sendOverTCP(t *testing.T, address, session, text string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body := `{"content":"` + text + `"}`
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		messages(session), adminKey, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// A client may close its sending side after a request and still read the response.
func TestSend_ClientHalfClosed_GetsResponse(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	session := p.session()
	address, ended := p.serveNotifying(t)
	generating := sendOverTCP(t, address, session, "first")
	c := model.next(t)
	waiting := sendOverTCP(t, address, session, "second")
	within(t, "the send to be queued", queued)
	answered := func(conn net.Conn) (int, string) {
		t.Helper()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	for _, conn := range []*net.TCPConn{waiting, generating} {
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		within(t, "the request's context to end", ended)
	}
	if status, body := answered(waiting); status != 503 || !strings.Contains(body, `"code":"service_unavailable"`) {
		t.Errorf("the queued client got %d %s", status, body)
	}
	c.say("A reply.")
	c.end()
	if status, body := answered(generating); status != 200 || !strings.Contains(body, "A reply.") {
		t.Errorf("the client that waited for the reply got %d %s", status, body)
	}
	if n := len(p.history(session)); n != 2 {
		t.Errorf("history has %d messages", n)
	}
}
