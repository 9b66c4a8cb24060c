package server_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"parley/stream"
)

// numbered is a model that replies "call 1" to the first call, and so on. It replies after the test has closed gate.
type numbered struct {
	calls atomic.Int64
	gate  chan struct{}
}

func (*numbered) Name() string { return "numbered" }

func (m *numbered) Generate(ctx context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
	n := m.calls.Add(1)
	select {
	case <-m.gate:
	case <-ctx.Done():
		return stream.Result{}, ctx.Err()
	}
	write(fmt.Appendf(nil, "call %d", n))
	return stream.Result{FinishReason: "stop"}, nil
}

func TestIdempotency_TenSendsAtOnce_OneReply(t *testing.T) {
	model := &numbered{gate: make(chan struct{})}
	p := start(t, model)
	session := p.session()
	var sends sync.WaitGroup
	answers := make(chan map[string]any, 10)
	replayed := make(chan string, 10)
	for range 10 {
		sends.Go(func() {
			a := p.call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "hi"}, "Idempotency-Key", "k1")
			if a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.raw)
			}
			answers <- a.body
			replayed <- a.header.Get("Idempotent-Replayed")
		})
	}
	close(model.gate)
	sends.Wait()
	first := <-answers
	for range 9 {
		if next := <-answers; next["messageId"] != first["messageId"] || next["content"] != "call 1" {
			t.Errorf("%v and %v", first, next)
		}
	}
	fresh := 0
	for range 10 {
		if <-replayed == "" {
			fresh++
		}
	}
	if n := model.calls.Load(); n != 1 || fresh != 1 {
		t.Errorf("the model was called %d times, and %d responses are not marked as replayed", n, fresh)
	}
	if count := p.must("GET", "/v1/sessions/"+session, nil)["messageCount"]; count != 2.0 {
		t.Errorf("messageCount is %v", count)
	}
}

func TestIdempotency_RepeatInMidReply_JoinsReply(t *testing.T) {
	model := &numbered{gate: make(chan struct{})}
	p := start(t, model)
	session := p.session()
	path := "/v1/sessions/" + session + "/messages"
	first := p.call("POST", path, map[string]any{"content": "hi", "streaming": true}, "Idempotency-Key", "k1").body

	socket := p.dial()
	if err := socket.send(map[string]any{"type": "send", "id": "1", "sessionId": session, "content": "hi", "idempotencyKey": "k1"}); err != nil {
		t.Fatal(err)
	}
	if sent := socket.next("sent"); sent.MessageID != first["messageId"] {
		t.Errorf("the reply has the id %s over the socket, and %v over REST", sent.MessageID, first["messageId"])
	}
	again := p.call("POST", path, map[string]any{"content": "hi", "streaming": true, "onBusy": "reject"}, "Idempotency-Key", "k1")
	if again.body["messageId"] != first["messageId"] || again.body["status"] != "streaming" || again.header.Get("Idempotent-Replayed") != "true" ||
		again.body["stream"].(map[string]any)["cursor"] != first["stream"].(map[string]any)["cursor"] {
		t.Errorf("%v and %s", first, again.raw)
	}
	close(model.gate)
	whole := p.call("POST", path, map[string]any{"content": "hi"}, "Idempotency-Key", "k1")
	if whole.body["messageId"] != first["messageId"] || whole.body["content"] != "call 1" || whole.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s", whole.raw)
	}
	over := p.call("POST", path, map[string]any{"content": "hi", "streaming": true}, "Idempotency-Key", "k1").body
	if over["status"] != "streaming" || over["content"] != "" || over["stream"].(map[string]any)["cursor"] != first["stream"].(map[string]any)["cursor"] {
		t.Errorf("after the end of the reply, the repeat got %v", over)
	}
}

func TestIdempotency_KeyReused_409IfRequestDiffers(t *testing.T) {
	model := &numbered{gate: make(chan struct{})}
	close(model.gate)
	p := start(t, model)
	session, other := p.session(), p.session()
	send := func(session, key string, body map[string]any) answer {
		return p.call("POST", "/v1/sessions/"+session+"/messages", body, "Idempotency-Key", key)
	}
	if a := send(session, "k1", map[string]any{"content": "hi"}); a.status != http.StatusOK {
		t.Fatal(a.raw)
	}
	for _, test := range []struct {
		name         string
		session, key string
		body         map[string]any
		status       int
		code         string
	}{
		{"409_another_content", session, "k1", map[string]any{"content": "ho"}, 409, "idempotency_conflict"},
		{"409_another_role", session, "k1", map[string]any{"content": "hi", "role": "system"}, 409, "idempotency_conflict"},
		{"409_another_metadata", session, "k1", map[string]any{"content": "hi", "metadata": map[string]any{}}, 409, "idempotency_conflict"},
		{"409_another_session", other, "k1", map[string]any{"content": "hi"}, 409, "idempotency_conflict"},
		{"400_key_too_long", session, fmt.Sprintf("%0200d", 1), map[string]any{"content": "hi"}, 400, "validation_error"},
		{"400_new_key_empty_content", session, "k2", map[string]any{"content": ""}, 400, "validation_error"},
		{"200_key_of_refused_request", session, "k2", map[string]any{"content": "hi"}, 200, ""},
		{"404_unknown_session", "session_0000000000000000", "k1", map[string]any{"content": "hi"}, 404, "session_not_found"},
		{"200_role_user_is_default", session, "k1", map[string]any{"content": "hi", "role": "user"}, 200, ""},
	} {
		if a := send(test.session, test.key, test.body); a.status != test.status || code(a.body) != test.code {
			t.Errorf("%s: %d %s", test.name, a.status, a.raw)
		}
	}
}

func TestIdempotency_CreateSessionTwice_OneSession(t *testing.T) {
	p := start(t, &numbered{})
	body := map[string]any{"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"maxTokens": 100}}
	first := p.call("POST", "/v1/sessions", body, "Idempotency-Key", "k1")
	if first.header.Get("Idempotent-Replayed") != "" {
		t.Error("the first response is marked as replayed")
	}
	if again := p.call("POST", "/v1/sessions", body, "Idempotency-Key", "k1"); again.raw != first.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s and %s", first.raw, again.raw)
	}
	if a := p.call("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"}, "Idempotency-Key", "k1"); a.status != 409 || code(a.body) != "idempotency_conflict" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	if page := p.must("GET", "/v1/sessions", nil)["data"].([]any); len(page) != 1 {
		t.Errorf("there are %d sessions", len(page))
	}
}
