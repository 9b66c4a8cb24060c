package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"parley/auth"
)

func TestQueriesAreStrict(t *testing.T) {
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
	t.Run("400_repeats_no_value", func(t *testing.T) {
		if a := p.call("GET", "/v1/sessions?limit=svc_live_secret&x=svc_live_secret", nil); a.status != 400 || strings.Contains(a.raw, "secret") {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
	t.Run("200_without_parameters", func(t *testing.T) {
		p.must("GET", "/v1/sessions?", nil)
		p.must("GET", "/v1/sessions?&", nil)
	})
}

// A ticket is single use: a handshake whose query is refused must not use it up.
func TestARepeatedTicketIsA400AndNotUsedUp(t *testing.T) {
	p := start(t, echo)
	ticket := p.must("POST", "/v1/stream/tickets", nil)["ticket"].(string)
	a := p.call("GET", "/v1/stream?ticket="+ticket+"&ticket="+ticket, nil, "Authorization", "")
	checkError(t, a, 400, "validation_error", "ticket")
	if strings.Contains(a.raw, ticket) {
		t.Error("the ticket is repeated")
	}
	s, err := p.tryDial(p.url+"?ticket="+ticket, websocket.DialOptions{HTTPHeader: http.Header{}})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.conn.CloseNow()
}

func TestRepeatedHeaders(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	reply := p.send(session, "hello")["messageId"].(string)
	events := "/v1/sessions/{id}/messages/" + reply + "/stream"
	cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
	key, other := "Bearer "+adminKey, "Bearer "+p.key("other", auth.Admin)
	twice := func(name, first, second string) []string { return []string{name, first + "\n" + second} }
	bad := refusals{
		"401_authorization":           {"GET", "/v1/sessions", nil, twice("Authorization", key, other), 401, "invalid_token", ""},
		"401_authorization_the_same":  {"GET", "/v1/sessions", nil, twice("Authorization", key, key), 401, "invalid_token", ""},
		"401_authorization_of_socket": {"GET", "/v1/stream", nil, twice("Authorization", key, other), 401, "invalid_token", ""},
		"401_authorization_no_route":  {"GET", "/v1/nothing", nil, twice("Authorization", key, other), 401, "invalid_token", ""},
		"400_content_type":            {"POST", "/v1/sessions", `{}`, twice("Content-Type", "application/json", "text/plain"), 400, "validation_error", "Content-Type"},
		"400_content_encodings":       {"POST", "/v1/sessions", `{}`, twice("Content-Encoding", "br", "gzip"), 400, "validation_error", "Content-Encoding"},
		"400_idempotency_key":         {"POST", "/v1/sessions/{id}/messages", `{"content":"x"}`, twice("Idempotency-Key", "a", "b"), 400, "validation_error", "Idempotency-Key"},
		"400_last_event_id":           {"GET", events, nil, twice("Last-Event-ID", cursor, cursor), 400, "validation_error", "Last-Event-ID"},
		"403_origin":                  {"GET", "/v1/stream", nil, twice("Origin", p.url, "https://evil.example"), 403, "origin_not_allowed", ""},
	}
	bad.run(t, p, session)
}

func TestAnEncodedSlashIsNoSeparator(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	reply := p.send(session, "hello")["messageId"].(string)
	refusals{
		"404_a_route":       {"GET", "/v1%2fsessions", nil, nil, 404, "not_found", ""},
		"404_upper_case":    {"GET", "/v1%2Fsessions", nil, nil, 404, "not_found", ""},
		"404_at_the_end":    {"GET", "/v1/sessions%2F", nil, nil, 404, "not_found", ""},
		"404_in_an_id":      {"GET", "/v1/sessions/{id}%2F", nil, nil, 404, "session_not_found", ""},
		"404_after_an_id":   {"GET", "/v1/sessions/{id}%2Fmessages", nil, nil, 404, "session_not_found", ""},
		"404_delete":        {"DELETE", "/v1/sessions/x%2F..%2F{id}", nil, nil, 404, "session_not_found", ""},
		"404_of_a_message":  {"GET", "/v1/sessions/{id}/messages/" + reply + "%2Fcancel", nil, nil, 404, "message_not_found", ""},
		"404_of_operations": {"GET", "/%2Fhealthz", nil, nil, 404, "not_found", ""},
	}.run(t, p, session)
	t.Run("200_another_escape", func(t *testing.T) {
		p.must("GET", "/v1/sessions/"+strings.Replace(session, "_", "%5F", 1), nil)
	})
}
