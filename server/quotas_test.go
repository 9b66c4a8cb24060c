package server_test

import (
	"strings"
	"testing"

	"parley/auth"
)

// TestCreateSession_194OnFreeTier_100Made makes 194 requests that create sessions, with a key of a new account. A new account
// has the tier free.
func TestCreateSession_194OnFreeTier_100Made(t *testing.T) {
	p := start(t, echo, withTiers(t, `{"free":{"requestsPerMinute":1000}}`))
	bearer := []string{"Authorization", "Bearer " + p.freeKey(t, "acme")}
	create := func(headers ...string) answer {
		return p.call("POST", "/v1/sessions", map[string]any{"userId": user}, append(bearer, headers...)...)
	}
	first := create("Idempotency-Key", "first")
	made := 1
	for range 193 {
		a := create()
		if a.status == 200 {
			made++
			continue
		}
		checkError(t, a, 429, "quota_exceeded", "", "quota", "used", "limit")
		if e := a.body["error"].(map[string]any); e["quota"] != "activeSessions" || e["used"] != 100.0 || e["limit"] != 100.0 ||
			a.header.Get("Retry-After") != "" {
			t.Fatalf("%v %s", a.header, a.raw)
		}
	}
	if made != 100 {
		t.Errorf("%d of 194 sessions were created, want 100", made)
	}
	again := create("Idempotency-Key", "first")
	if again.status != 200 || again.body["sessionId"] != first.body["sessionId"] || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeat of the first create: %d %v %s", again.status, again.header, again.raw)
	}
	p.status(t, "delete", bearer[1][len("Bearer "):], "DELETE", "/v1/sessions/"+first.body["sessionId"].(string), nil, 200, "")
	if a := create(); a.status != 200 {
		t.Errorf("after a delete: %d %s", a.status, a.raw)
	}
	usage := p.call("GET", "/v1/analytics/usage", nil, bearer...).body
	for path, want := range map[string]any{
		"quotas.activeSessions.used": 100.0, "quotas.activeSessions.limit": 100.0, "quotas.activeSessions.percentage": 100.0,
		"quotas.keys.used": 1.0, "quotas.keys.limit": 1000.0, "quotas.storedBytes.used": 0.0, "quotas.storedBytes.limit": 100_000_000.0,
		"quotas.sockets.used": 0.0, "quotas.sockets.limit": 50.0,
		"sessions.active": 100.0,
	} {
		if got := at(usage, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// freeKey creates an admin key of a new account with the free tier, and returns the secret.
func (p *parley) freeKey(t *testing.T, account string) string {
	t.Helper()
	_, secret, err := p.keys.CreateFor(t.Context(), auth.Owner{Account: account, Mode: auth.Live}, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// TestSend_StoredBytesQuota_429 stores bytes up to the quota, over REST and over a socket. The last reply is whole, although it
// exceeds the quota.
func TestSend_StoredBytesQuota_429(t *testing.T) {
	p := start(t, echo, withTiers(t, `{"pro":{"storedBytes":1000}}`))
	session := p.session()
	refused := p.call("POST", messages(session), content("x", "metadata", map[string]any{"a": strings.Repeat("x", 1000)}))
	checkError(t, refused, 429, "quota_exceeded", "", "quota", "used", "limit")
	if e := refused.body["error"].(map[string]any); e["quota"] != "storedBytes" || e["used"] != 0.0 || e["limit"] != 1000.0 {
		t.Errorf("the refused send: %s", refused.raw)
	}
	if n := len(p.history(session)); n != 0 {
		t.Errorf("the refused send stored %d messages", n)
	}
	long := strings.Repeat("x", 900)
	if reply := p.send(session, long); !strings.Contains(reply["content"].(string), long) {
		t.Errorf("the reply over the quota has %d bytes", len(reply["content"].(string)))
	}
	s := p.dial()
	s.must(map[string]any{"type": "send", "id": "1", "sessionId": session, "content": "y"})
	if got := s.next("error"); got.code != "quota_exceeded" || !strings.Contains(string(got.Error), `"quota":"storedBytes"`) {
		t.Errorf("the send over the socket: %s", got.raw)
	}
	checkError(t, p.call("POST", "/v1/sessions", map[string]any{"userId": user}), 429, "quota_exceeded", "", "quota", "used", "limit")
	p.must("DELETE", "/v1/sessions/"+session, nil)
	p.send(p.session(), "y")
}
