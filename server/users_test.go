package server_test

import (
	"fmt"
	"net/http"
	"testing"
)

// onBothStores runs a test on the embedded store and on Redis.
func onBothStores(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, newFile(t)) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); test(t, newDatabase(t)) })
}

const greedyUser, otherUser = "user_greedy0000000000", "user_other00000000000"

// TestUsers_InvalidRequests_CountForUser makes invalid requests that name a user.
func TestUsers_InvalidRequests_CountForUser(t *testing.T) {
	onBothStores(t, func(t *testing.T, url string) {
		p := startOn(t, url, echo, withTiers(t, `{"pro":{"userRequestsPerMinute":5}}`))
		session := p.must("POST", "/v1/sessions", map[string]any{"userId": greedyUser})["sessionId"].(string)
		for i, r := range []struct {
			method, path string
			body         any
		}{
			{"GET", "/v1/sessions/" + session + "?unknown=1", nil},
			{"GET", "/v1/sessions?limit=0&userId=" + greedyUser, nil},
			{"POST", "/v1/sessions", map[string]any{"userId": greedyUser, "metadata": 1}},
			{"POST", "/v1/sessions/" + session + "/messages", map[string]any{"content": ""}},
		} {
			if a := p.call(r.method, r.path, r.body); a.status != 400 {
				t.Errorf("invalid request %d: %d %s", i, a.status, a.raw)
			}
		}
		if a := p.call("GET", "/v1/sessions/"+session, nil); a.status != 429 {
			t.Errorf("the sixth request of the user: %d %s", a.status, a.raw)
		}
	})
}

// TestUsers_OneUserFloods_OtherUserServed makes 310 list calls for one user of an account. Without the limits of users, the
// next send of another user would get 429.
func TestUsers_OneUserFloods_OtherUserServed(t *testing.T) {
	onBothStores(t, func(t *testing.T, url string) {
		p := startOn(t, url, echo, withTiers(t, `{"pro":{"userRequestsPerMinute":100}}`))
		greedy := p.must("POST", "/v1/sessions", map[string]any{"userId": greedyUser})["sessionId"].(string)
		other := p.must("POST", "/v1/sessions", map[string]any{"userId": otherUser})["sessionId"].(string)
		passed, refused := 0, answer{}
		for range 310 {
			if a := p.call("GET", "/v1/sessions?userId="+greedyUser, nil); a.status == http.StatusOK {
				passed++
			} else {
				refused = a
			}
		}
		if passed != 99 {
			t.Errorf("%d list calls of the user passed, want 99 of 310 after a create", passed)
		}
		e := refused.body["error"].(map[string]any)
		if refused.status != 429 || e["limit"] != "userRequestsPerMinute" || e["message"] != "The limit of 100 requests a minute for each user is reached." {
			t.Errorf("the refusal is %d %s", refused.status, refused.raw)
		}
		for header, want := range map[string]string{"X-RateLimit-Limit": "300", "X-RateLimit-Remaining": "199"} {
			if got := refused.header.Get(header); got != want {
				t.Errorf("%s of the refusal is %s, want the account's %s", header, got, want)
			}
		}
		s := p.dial()
		s.must(map[string]any{"type": "send", "id": "1", "sessionId": greedy, "content": "hello"})
		if f := s.next("error"); f.code != "rate_limit_exceeded" {
			t.Errorf("a send of the user on a socket: %s", f.raw)
		}
		for path, body := range map[string]any{
			"/v1/sessions": map[string]any{"userId": greedyUser}, "/v1/sessions/" + greedy + "/messages": map[string]any{"content": "hello"},
			"/v1/stream/tickets": map[string]any{"sessionId": greedy},
		} {
			if a := p.call("POST", path, body); a.status != 429 {
				t.Errorf("POST %s for the user: %d %s", path, a.status, a.raw)
			}
		}
		p.send(other, "hello")
		s.must(map[string]any{"type": "send", "id": "2", "sessionId": other, "content": "hello"})
		s.next("sent")
		user := p.must("GET", "/v1/analytics/usage?userId="+greedyUser, nil)["user"]
		want := "map[requestsPerMinute:map[limit:100 used:100] tokensPerMinute:map[limit:100000 used:<nil>] userId:" + greedyUser + "]"
		if got := fmt.Sprint(user); got != want {
			t.Errorf("the usage of the user is %s, want %s", got, want)
		}
	})
}

func TestUsers_OneUserOutOfTokens_OtherUserServed(t *testing.T) {
	onBothStores(t, func(t *testing.T, url string) {
		p := startOn(t, url, echo, withTiers(t, `{"pro":{"userTokensPerMinute":500}}`))
		greedy := p.must("POST", "/v1/sessions", map[string]any{"userId": greedyUser})["sessionId"].(string)
		other := p.must("POST", "/v1/sessions", map[string]any{"userId": otherUser})["sessionId"].(string)
		p.send(greedy, "hello") // settled, so a few tokens count
		a := p.call("POST", "/v1/sessions/"+greedy+"/messages", map[string]any{"content": "hello again"})
		if e, _ := a.body["error"].(map[string]any); a.status != 429 || e["limit"] != "userTokensPerMinute" {
			t.Errorf("the second send of the user: %d %s, want a refusal by userTokensPerMinute", a.status, a.raw)
		}
		if got := a.header.Get("X-RateLimit-Limit"); got != "300" {
			t.Errorf("X-RateLimit-Limit of the refusal is %s, want the account's 300", got)
		}
		p.send(other, "hello")
		user := p.must("GET", "/v1/analytics/usage?userId="+greedyUser, nil)["user"].(map[string]any)
		if used := user["tokensPerMinute"].(map[string]any)["used"].(float64); used < 1 || used > 200 {
			t.Errorf("the user has used %v tokens, want those of one settled turn", used)
		}
	})
}

func TestMonth_TokensUsedUp_SendGets429(t *testing.T) {
	onBothStores(t, func(t *testing.T, url string) {
		p := startOn(t, url, echo, withTiers(t, `{"pro":{"tokensPerMonth":1,"enforceMonth":true}}`))
		session := p.session()
		p.send(session, "hello")
		report := p.must("GET", "/v1/analytics/usage", nil)["tokens"].(map[string]any)
		a := p.call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "again"})
		e, _ := a.body["error"].(map[string]any)
		if a.status != 429 || e["code"] != "quota_exceeded" || e["quota"] != "tokensPerMonth" || e["used"] != report["used"] || e["limit"] != 1.0 {
			t.Errorf("a send over the month's tokens: %d %s; the report has %v", a.status, a.raw, report)
		}
		if a.header.Get("Retry-After") != "" {
			t.Error("a quota has a Retry-After")
		}
	})
}
