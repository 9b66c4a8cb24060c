package server_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/store/redis/redistest"
)

// fillKeys is a Lua script that stores ARGV[1] API keys of an account, in the format of store/redis/lua/create_key.lua. The
// script stores no pointer from a secret's hash to its key, so the keys do not authenticate. KEYS[1] is the index of the
// account's keys by creation. ARGV[2] is the time of the first key, in milliseconds.
const fillKeys = `
local tag = string.match(KEYS[1], '^{[^}]*}')
for i = 1, ARGV[1] do
  local id, created = string.format('key_%016d', i), string.format('%d', ARGV[2] + i)
  redis.call('HSET', tag .. ':key:' .. id, 'id', id, 'name', 'key', 'scopes', '["admin"]', 'prefix', 'svc_live_ab', 'expires', '',
    'created', created, 'secret', string.rep('A', 43), 'since', created, 'tier', 'free', 'version', 1)
  redis.call('ZADD', KEYS[1], created, id)
  redis.call('ZADD', tag .. ':kx', '+inf', id)
end
return redis.call('ZCARD', KEYS[1])`

// TestNodes_20001KeysListed_OtherAccountUndisturbed lists the keys of an account of the tier free on node a, with all requests
// that the account has in a minute. Meanwhile, another account works on node b of the same Redis.
func TestNodes_20001KeysListed_OtherAccountUndisturbed(t *testing.T) {
	redis := redistest.Single(t)
	a, b := startOn(t, redis.URL+redistest.Patient, echo), startOn(t, redis.URL+redistest.Patient, echo)
	_, many, err := a.keys.CreateFor(t.Context(), auth.Owner{Account: "many", Mode: auth.Live},
		auth.NewKey{Name: "first", Scopes: []auth.Scope{auth.Admin}}, limit.Free)
	if err != nil {
		t.Fatal(err)
	}
	since := strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)
	if n := redis.Do("EVAL", fillKeys, "1", "{a:many:l}:ki", "20000", since); strings.TrimSpace(n) != ":20001" {
		t.Fatalf("the account has %q keys, want 20,001", n)
	}

	listed := make(chan []string)
	go func() {
		var ids []string
		defer func() { listed <- ids }()
		for cursor := ""; ; {
			got, err := a.do(t.Context(), "GET", "/v1/keys?limit=100"+cursor, nil, "Authorization", "Bearer "+many)
			if err != nil || got.status == 429 && len(ids) == 6_000 {
				return // the requests of the minute are used up
			}
			if got.status != 200 {
				t.Errorf("after %d keys, the list gets %d %s", len(ids), got.status, got.raw)
				return
			}
			for _, key := range got.body["data"].([]any) {
				ids = append(ids, key.(map[string]any)["keyId"].(string))
			}
			cursor = "&cursor=" + got.body["pagination"].(map[string]any)["nextCursor"].(string)
		}
	}()

	other, slowest, n := b.key("other", auth.Admin), time.Duration(0), 0
	for {
		select {
		case ids := <-listed:
			if slices.Sort(ids); len(slices.Compact(ids)) != 6_000 {
				t.Errorf("60 pages have %d keys, want 6,000", len(ids))
			}
			t.Logf("the other account made %d requests; the slowest took %v", n, slowest)
			if n == 0 {
				t.Error("the other account made no request")
			}
			return
		default:
		}
		began := time.Now()
		b.status(t, "the other account", other, "POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, 200, "")
		slowest = max(slowest, time.Since(began))
		n++
	}
}
