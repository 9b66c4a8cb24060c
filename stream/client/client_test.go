package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"parley/stream/client"
)

// sendHi sends "Hi" to a scripted server, iterates to the end, and returns a short form of each event and of the error.
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

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSend_RepeatedFrames_Dropped(t *testing.T) {
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
		t.Errorf("the client asked for the missing text %d times, want 1", asked)
	}
}

// scriptLosingWrites returns a script that closes the socket in mid-reply, and then refuses the client's cursor.
// subscribes counts the refusals.
func scriptLosingWrites(subscribes *atomic.Int32) func(s *serverSide) {
	return func(s *serverSide) {
		for s.readRequest() {
			switch {
			case s.request["type"] == "subscribe" && s.request["after"] != nil:
				subscribes.Add(1)
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

func TestSend_UnknownCursor_ReplyLookedUp(t *testing.T) {
	var subscribes atomic.Int32
	equal(t, sendHi(t, scriptLosingWrites(&subscribes)), "created", "0 as sho", "interrupted as kept")
	var gone atomic.Bool
	gone.Store(true)
	equal(t, sendHi(t, scriptLosingWrites(&subscribes), &gone), "created", "0 as sho", "session_cleared 0 ")
	if n := subscribes.Load(); n != 2 {
		t.Errorf("two sends used an unknown cursor %d times, want 2", n)
	}
}

func TestSend_ClearedBefore_ReplyShown(t *testing.T) {
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

func TestSend_NotConfirmed_SameIdempotencyKey(t *testing.T) {
	names, order := map[any]bool{}, ""
	got := sendHi(t, func(s *serverSide) {
		for s.readRequest() {
			order += fmt.Sprint(s.request["type"], " ")
			switch s.request["type"] {
			case "subscribe":
				s.subscribed("start")
				if s.nth > 1 {
					s.created()
					s.completed("")
				}
			case "send":
				if names[s.request["idempotencyKey"]] = true; s.nth == 1 {
					return // accepted, but not confirmed
				}
				s.sent()
			}
		}
	})
	equal(t, got, "created", "completed ")
	// On the second socket, the client must subscribe after the response that has the id of the reply.
	if len(names) != 1 || names[nil] || !strings.HasPrefix(order, "subscribe send send subscribe ") {
		t.Errorf("%v, %s", names, order)
	}
}

func TestSend_Refused_ReturnsServersError(t *testing.T) {
	for code, want := range map[string]string{"context_overflow": "context_overflow 413 r1", "session_busy": "session_busy 409 r1", "of_tomorrow": "of_tomorrow 0 r1"} {
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
			t.Errorf("%s: %v", path, e)
		}
	}
	for _, err := range c.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != 418 {
			t.Errorf("%v", err)
		}
	}
	c.Close()
	if e, ok := errors.AsType[*client.Error](c.Do(t.Context(), "GET", "/sessions", nil, nil)); !ok || e.Code != "closed" {
		t.Errorf("%v", e)
	}
	for _, err := range c.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "closed" {
			t.Errorf("%v", err)
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
		s.write(`{"type":"of_tomorrow","sessionId":%q}`, session)
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
	equal(t, got, "created u", "created 0", "delta 3", "compressed 4 1 900 200", "end failed provider_error 502", "cleared ", "expired ")
}

func TestCancel_WithTicket_UsesOneSocket(t *testing.T) {
	cancels := 0
	server := startScripted(func(s *serverSide) {
		for s.waitFor("cancel") {
			if cancels++; s.request["messageId"] != reply {
				t.Errorf("the client cancelled %v", s.request["messageId"])
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
			t.Errorf("%+v, %v", m, err)
		}
	}
	if e, ok := errors.AsType[*client.Error](c.Do(t.Context(), "GET", "/sessions", nil, nil)); !ok || e.Code != "no_key" {
		t.Errorf("a REST request without a key: %v", e)
	}
	c.Close()
	if cancels != 2 || tickets != 1 {
		t.Errorf("%d cancels with %d tickets; want 2 on one socket", cancels, tickets)
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
			t.Errorf("%v", err)
		}
	}
	if asked != 1 {
		t.Errorf("Ticket was called %d times, want 1", asked)
	}
	none := client.New(client.Options{BaseURL: server.URL + "/v1"})
	defer none.Close()
	for _, err := range none.Watch(t.Context(), session, "") {
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "no_key" {
			t.Errorf("with neither key nor ticket: %v", err)
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
			t.Errorf("%v", err)
		}
	}
}
