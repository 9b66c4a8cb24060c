package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"parley/stream/client"
)

// sendHi sends "Hi" to a server that runs script. It iterates to the end, and returns each event and the error as text.
func sendHi(t *testing.T, script func(s *serverSide), gone ...*atomic.Bool) (shown []string) {
	t.Helper()
	server := startScripted(script, gone...)
	defer server.Close()
	c := client.New(client.Options{BaseURL: server.URL + "/v1/", Key: "k"})
	defer c.Close()
	for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: "Hi"}) {
		switch refused, _ := errors.AsType[*client.Error](err); {
		case refused != nil:
			shown = append(shown, fmt.Sprint(refused.Code, " ", refused.Status, " ", refused.RequestID))
		case err != nil:
			t.Fatal(err)
		case e.Type == client.Delta:
			shown = append(shown, fmt.Sprint(e.Offset, " ", e.Delta))
		case e.Type == client.End:
			shown = append(shown, fmt.Sprint(e.Message.Status, " ", e.Message.Content))
		default:
			shown = append(shown, e.Type)
		}
	}
	return shown
}

// equal fails the test if the events of sendHi are not those in want.
func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSend_RepeatedFrames_YieldedOnce(t *testing.T) {
	got := sendHi(t, func(s *serverSide) {
		s.waitFor("subscribe")
		s.subscribed("start")
		s.waitFor("send")
		s.sent()
		s.created()
		s.created()
		s.delta(0, "Grüß")
		s.delta(0, "Gr")
		s.delta(2, "üße")
		s.completed("Grüße")
		s.completed("Grüße")
		s.readRequest()
	})
	equal(t, got, "created", "0 Grüß", "6 e", "completed Grüße")
}

func TestSend_MissingText_RequestedOnce(t *testing.T) {
	asked := 0
	got := sendHi(t, func(s *serverSide) {
		for s.readRequest() {
			switch {
			case s.request["type"] == "send":
				s.sent()
				s.created()
				s.delta(0, "abc")
				s.delta(5, "fg")
			case s.request["type"] == "subscribe" && s.request["after"] == nil:
				s.subscribed("start")
			case s.request["type"] == "subscribe":
				if asked++; s.request["after"] != "3" {
					t.Errorf("the client subscribed after %v, want 3", s.request["after"])
				}
				s.subscribed("3")
				s.delta(5, "fg")
				s.completed("abcdefg")
			}
		}
	})
	equal(t, got, "created", "0 abc", "5 fg", "completed abcdefg")
	if asked != 1 {
		t.Errorf("the client requested the missing text %d times, want 1", asked)
	}
}

// scriptWithUnknownCursor returns a script that closes the socket in the middle of the reply. When the client subscribes
// with a cursor, the script refuses the cursor. refusals counts these refusals.
func scriptWithUnknownCursor(refusals *atomic.Int32) func(s *serverSide) {
	return func(s *serverSide) {
		for s.readRequest() {
			switch {
			case s.request["type"] == "subscribe" && s.request["after"] != nil:
				refusals.Add(1)
				s.refuse("validation_error", "after")
			case s.request["type"] == "subscribe":
				s.subscribed(fmt.Sprint("start of ", s.nth))
			case s.request["type"] == "send":
				s.sent()
				s.created()
				s.delta(0, "as sho")
				return
			}
		}
	}
}

func TestSend_CursorUnknown_EndsWithStoredReply(t *testing.T) {
	var refusals atomic.Int32
	equal(t, sendHi(t, scriptWithUnknownCursor(&refusals)), "created", "0 as sho", "interrupted as kept")
	var gone atomic.Bool
	gone.Store(true)
	equal(t, sendHi(t, scriptWithUnknownCursor(&refusals), &gone), "created", "0 as sho", "session_cleared 0 ")
	if n := refusals.Load(); n != 2 {
		t.Errorf("the clients of two sends used an unknown cursor %d times, want once each", n)
	}
}

func TestSend_HistoryClearedBeforeReply_YieldsReply(t *testing.T) {
	got := sendHi(t, func(s *serverSide) {
		s.waitFor("subscribe")
		s.subscribed("start")
		s.waitFor("send")
		s.sent()
		s.write(`{"type":"session.cleared","sessionId":%q}`, session)
		s.created()
		s.delta(0, "new")
		s.completed("new")
		s.readRequest()
	})
	equal(t, got, "created", "0 new", "completed new")
}

func TestSend_Refused_ReturnsErrorOfServer(t *testing.T) {
	for code, want := range map[string]string{"context_overflow": "context_overflow 413 r1", "session_busy": "session_busy 409 r1", "new_code": "new_code 0 r1"} {
		equal(t, sendHi(t, func(s *serverSide) {
			s.waitFor("subscribe")
			s.subscribed("start")
			s.waitFor("send")
			s.refuse(code, "")
			s.readRequest()
		}), want)
	}
}

func TestSend_ServerDrains_Reconnects(t *testing.T) {
	got := sendHi(t, func(s *serverSide) {
		s.waitFor("subscribe")
		s.subscribed("start")
		if s.nth == 1 {
			s.waitFor("send")
			s.sent()
			s.created()
			s.write(`{"type":"draining","reconnectAfterMs":1}`)
			_ = s.conn.Close(1012, "the server is going away")
			return
		}
		s.delta(0, "on")
		s.completed("on")
		s.readRequest()
	})
	equal(t, got, "created", "0 on", "completed on")
}

func TestSend_ServiceUnavailable_Retried(t *testing.T) {
	refused := 0
	got := sendHi(t, func(s *serverSide) {
		for s.readRequest() {
			switch {
			case s.request["type"] == "subscribe":
				if s.subscribed("start"); refused > 0 {
					s.completed("")
				}
			case s.request["type"] == "send" && refused == 0:
				refused++
				s.refuse("service_unavailable", "")
			case s.request["type"] == "send":
				s.sent()
			}
		}
	})
	equal(t, got, "completed ")
}

func TestDo_NotAParleyServer_InternalError(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/of/html" {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprint(w, "<html>")
	}))
	defer proxy.Close()
	c := client.New(client.Options{BaseURL: proxy.URL + "/v1", Key: "k"})
	defer c.Close()
	var answer struct{}
	for path, status := range map[string]int{"/of/html": 200, "/sessions": 418} {
		e, ok := errors.AsType[*client.Error](c.Do(t.Context(), "GET", path, nil, &answer))
		if !ok || e.Code != "internal_error" || e.Status != status {
			t.Errorf("Do of %s: got %v, want internal_error with status %d", path, e, status)
		}
	}
	for _, err := range c.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != 418 {
			t.Errorf("Watch: got %v, want status 418", err)
		}
	}
	c.Close()
	if e, ok := errors.AsType[*client.Error](c.Do(t.Context(), "GET", "/sessions", nil, nil)); !ok || e.Code != "closed" {
		t.Errorf("Do after Close: got %v, want closed", e)
	}
	for _, err := range c.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "closed" {
			t.Errorf("Watch after Close: got %v, want closed", err)
		}
	}
}

func TestWatch_EveryKindOfEvent_Yielded(t *testing.T) {
	server := startScripted(func(s *serverSide) {
		s.waitFor("subscribe")
		s.subscribed("start")
		s.write(`{"type":"message.created","sessionId":%q,"message":{"messageId":"msg_0","role":"user","status":"completed","content":"Hi"},"cursor":"u"}`, session)
		s.created()
		s.delta(0, "abc")
		s.write(`{"type":"context.compressed","sessionId":%q,"summarised":4,"dropped":1,"tokensBefore":900,"tokensAfter":200}`, session)
		s.write(`{"type":"reply.reasoning","sessionId":%q,"messageId":%q}`, session, reply)
		s.write(`{"type":"new.type","sessionId":%q}`, session)
		s.write(`{"type":"message.failed","sessionId":%q,"message":{"messageId":%q,"status":"failed"},"error":{"code":"provider_error","message":"no"},"cursor":"e"}`, session, reply)
		s.write(`{"type":"session.cleared","sessionId":%q}`, session)
		s.write(`{"type":"session.expired","sessionId":%q}`, session)
		s.readRequest()
	})
	defer server.Close()
	c := client.New(client.Options{BaseURL: server.URL + "/v1", Key: "k"})
	defer c.Close()
	var got []string
	for e, err := range c.Watch(t.Context(), session, "") {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case client.Compressed:
			got = append(got, fmt.Sprint(e.Type, " ", e.Summarised, " ", e.Dropped, " ", e.TokensBefore, " ", e.TokensAfter))
		case client.End:
			got = append(got, fmt.Sprint(e.Type, " ", e.Message.Status, " ", e.Message.Error.Code, " ", e.Message.Error.Status))
		default:
			got = append(got, fmt.Sprint(e.Type, " ", e.Cursor))
		}
	}
	equal(t, got, "created u", "created 0", "delta 3", "compressed 4 1 900 200", "reasoning ", "end failed provider_error 502", "cleared ", "expired ")
}

func TestCancel_TwiceWithTicket_UsesOneSocket(t *testing.T) {
	cancels := 0
	server := startScripted(func(s *serverSide) {
		for s.waitFor("cancel") {
			if cancels++; s.request["messageId"] != reply {
				t.Errorf("the client cancelled the message %v, want %s", s.request["messageId"], reply)
			}
			s.write(`{"type":"cancelled","replyTo":%q,"message":{"messageId":%q,"status":"cancelled","content":"as f"}}`, s.request["id"], reply)
		}
	})
	defer server.Close()
	tickets := 0
	c := client.New(client.Options{BaseURL: server.URL + "/v1", Ticket: func(context.Context) (string, error) {
		tickets++
		return "ticket1", nil
	}})
	for range 2 {
		if m, err := c.Cancel(t.Context(), session, reply); err != nil || m.Status != "cancelled" || m.Content != "as f" {
			t.Errorf("Cancel returned %+v, %v; want the cancelled reply", m, err)
		}
	}
	if e, ok := errors.AsType[*client.Error](c.Do(t.Context(), "GET", "/sessions", nil, nil)); !ok || e.Code != "no_key" {
		t.Errorf("Do without a key: got %v, want no_key", e)
	}
	c.Close()
	if cancels != 2 || tickets != 1 {
		t.Errorf("the server got %d cancels, and the client used %d tickets; want 2 cancels and 1 ticket", cancels, tickets)
	}
}

func TestWatch_TicketRefused_NotRetried(t *testing.T) {
	server := startScripted(hello)
	defer server.Close()
	asked := 0
	c := client.New(client.Options{BaseURL: server.URL + "/v1", Ticket: func(context.Context) (string, error) {
		asked++
		return "", &client.Error{Code: "invalid_token", Message: "expired", Status: http.StatusUnauthorized}
	}})
	defer c.Close()
	for _, err := range c.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "invalid_token" || e.Error() != "invalid_token: expired" {
			t.Errorf("got %v, want the error of Ticket", err)
		}
	}
	if asked != 1 {
		t.Errorf("the client called Ticket %d times, want 1", asked)
	}
	none := client.New(client.Options{BaseURL: server.URL + "/v1"})
	defer none.Close()
	for _, err := range none.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "no_key" {
			t.Errorf("with neither key nor ticket: got %v, want no_key", err)
		}
	}
}

func TestWatch_KeyRevoked_NotRetried(t *testing.T) {
	server := startScripted(func(s *serverSide) {
		s.waitFor("subscribe")
		_ = s.conn.Close(4401, "the key was revoked or has expired")
	})
	defer server.Close()
	c := client.New(client.Options{BaseURL: server.URL + "/v1", Key: "k"})
	defer c.Close()
	for _, err := range c.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "invalid_token" || e.Status != 401 || e.Unwrap() == nil {
			t.Errorf("got %v, want invalid_token with status 401 and a cause", err)
		}
	}
}

func TestError_LimitIsNameOrNumber_Decoded(t *testing.T) {
	for body, want := range map[string]client.Error{
		`{"code":"rate_limit_exceeded","message":"m","limit":"requestsPerMinute","retryAfter":7}`: {
			Code: "rate_limit_exceeded", Message: "m", Status: 429, RateLimit: "requestsPerMinute", RetryAfter: 7 * time.Second,
		},
		`{"code":"quota_exceeded","message":"m","quota":"keys","used":12,"limit":10}`: {
			Code: "quota_exceeded", Message: "m", Status: 429, Quota: "keys", QuotaUsed: 12, QuotaLimit: 10,
		},
	} {
		var e client.Error
		if err := json.Unmarshal([]byte(body), &e); err != nil || e != want {
			t.Errorf("%s: %+v, error %v", body, e, err)
		}
	}
}
