package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/store/redis/redistest"
)

// The tests of package server run two nodes in one process. This test runs two processes, as users do.
func TestNodes_TwoProcesses_BehaveAsOneService(t *testing.T) {
	t.Parallel()
	model := newWordsModel(t, time.Millisecond)
	p := newPair(t, redistest.Single(t).URL+redistest.Patient, model)
	a, b := p.node(0), p.node(1)
	begin := func(asked string) (path string) {
		session := a.session()
		begun := a.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": asked, "streaming": true})
		return "/v1/sessions/" + session + "/messages/" + begun["messageId"].(string)
	}
	t.Run("other node streams the whole reply", func(t *testing.T) {
		if text, end, _ := b.follow(begin("say 2000")); text != words(2000) || end.kind != "message.completed" || end.Message.Content != text {
			t.Errorf("the deltas have %d bytes, the terminal event is %q with %d", len(text), end.kind, len(end.Message.Content))
		}
	})
	t.Run("cancel on the other node closes the model request", func(t *testing.T) {
		asked := "say 100000 words, to be cancelled"
		path := begin(asked)
		m := b.must("POST", path+"/cancel", nil)
		if content := m["content"].(string); m["status"] != "cancelled" || !strings.HasPrefix(words(100_000), content) {
			t.Errorf("the cancelled reply is %v with %d bytes", m["status"], len(content))
		}
		model.awaitClosed(t, asked)
	})
	t.Run("concurrent sends to both nodes run one at a time", func(t *testing.T) { sendTwenty(t, p) })
	t.Run("revoked key is refused on both nodes", func(t *testing.T) {
		key := a.must("POST", "/v1/keys", map[string]any{"name": "n", "scopes": []string{"read:sessions"}})
		status := func(node *process) int {
			as := *node
			as.key = key["key"].(string)
			status, _, err := as.call("GET", "/v1/sessions", nil)
			if err != nil {
				t.Error(err)
			}
			return status
		}
		if status(a) != http.StatusOK || status(b) != http.StatusOK {
			t.Error("a node refuses the new key")
		}
		a.must("DELETE", "/v1/keys/"+key["keyId"].(string), nil)
		if onA, onB := status(a), status(b); onA != http.StatusUnauthorized || onB != http.StatusUnauthorized {
			t.Errorf("with the revoked key the nodes return %d and %d, want 401", onA, onB)
		}
	})
}

// sendTwenty sends twenty messages at once, to both nodes. Each send must get its reply. In the history, each reply must come
// directly after its message.
func sendTwenty(t *testing.T, p *pair) {
	session := p.node(0).session()
	var sends sync.WaitGroup
	for i := range 20 {
		sends.Go(func() {
			n := 5 + i
			status, answer, err := p.node(i).call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": fmt.Sprintf("say %d", n)})
			if err != nil || status != http.StatusOK || answer["content"] != words(n) {
				t.Errorf("send %d: %d %v %v", i, status, answer, err)
			}
		})
	}
	sends.Wait()
	history := p.node(1).must("GET", "/v1/sessions/"+session+"/messages?order=asc&limit=100", nil)["data"].([]any)
	if len(history) != 40 {
		t.Fatalf("the history has %d messages, want 40", len(history))
	}
	for i := 0; i < len(history); i += 2 {
		asked, reply := history[i].(map[string]any), history[i+1].(map[string]any)
		n := 0
		_, _ = fmt.Sscanf(asked["content"].(string), "say %d", &n)
		if asked["role"] != "user" || reply["role"] != "assistant" || reply["content"] != words(n) {
			t.Errorf("after the message %v comes the reply %v", asked["content"], reply["content"])
		}
	}
}

// 100 requests to two nodes count against one limit: 60 requests a minute, the limit of the tier free.
func TestNodes_RateLimit_IsShared(t *testing.T) {
	t.Parallel()
	model := newWordsModel(t, time.Millisecond)
	p := &pair{t: t, dir: t.TempDir(), env: append(model.env(), "PARLEY_STORE="+redistest.Single(t).URL+redistest.Patient, "PARLEY_TIER=free")}
	p.start(0)
	p.start(1)
	var admitted, refused atomic.Int32
	var requests sync.WaitGroup
	for i := range 100 {
		requests.Go(func() {
			switch status, answer, err := p.node(i).call("GET", "/v1/sessions", nil); {
			case err == nil && status == http.StatusOK:
				admitted.Add(1)
			case err == nil && status == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("GET /v1/sessions: %d %v %v", status, answer, err)
			}
		})
	}
	requests.Wait()
	if admitted.Load() != 60 || refused.Load() != 40 {
		t.Errorf("%d requests were admitted and %d refused, want 60 and 40", admitted.Load(), refused.Load())
	}
}
