package client_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

func TestSend_NotConfirmed_RepeatedWithSameKey(t *testing.T) {
	keys, order := map[any]bool{}, ""
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
				if keys[s.request["idempotencyKey"]] = true; s.nth == 1 {
					return // the server has accepted the message, but does not confirm it
				}
				s.sent()
			}
		}
	})
	equal(t, got, "created", "completed ")
	// On the second socket, the client must not subscribe before it knows the id of the reply from the response.
	if len(keys) != 1 || keys[nil] || !strings.HasPrefix(order, "subscribe send send subscribe ") {
		t.Errorf("the client used the idempotency keys %v, and sent the requests %s", keys, order)
	}
}

func TestSend_ConfirmedWithCursor_SubscribesAfterCursor(t *testing.T) {
	order := ""
	got := sendHi(t, func(s *serverSide) {
		for s.readRequest() {
			order += fmt.Sprint(s.request["type"], " ")
			switch {
			case s.request["type"] == "send":
				s.delta(7, "yo") // this and the next delta are of the first subscription, which began in the middle of the reply
				s.write(`{"type":"sent","replyTo":%q,"sessionId":%q,"messageId":%q,"cursor":"before"}`, s.request["id"], session, reply)
				s.delta(9, "u.")
			case s.request["after"] == "before":
				s.subscribed("before")
				s.created()
				s.delta(0, "Hello, you.")
				s.completed("Hello, you.")
			case s.request["type"] == "subscribe":
				s.subscribed("7")
			}
		}
	})
	equal(t, got, "created", "0 Hello, you.", "completed Hello, you.")
	if !strings.HasPrefix(order, "subscribe send subscribe ") {
		t.Errorf("the requests were %s", order)
	}
}

func TestSend_RemovedBeforeConfirmation_ReturnsError(t *testing.T) {
	var gone atomic.Bool
	gone.Store(true)
	for _, how := range []string{"deleted", "expired", "cleared"} {
		got := sendHi(t, func(s *serverSide) {
			s.waitFor("subscribe")
			s.subscribed("start")
			s.waitFor("send")
			s.write(`{"type":"session.%s","sessionId":%q}`, how, session)
			s.sent()
			s.readRequest()
		}, &gone)
		equal(t, got, "session_"+how+" 0 ")
	}
}
