package server_test

import (
	"bytes"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
)

// with returns the headers of a request that authenticates with a key's secret.
func with(secret string) []string { return []string{"Authorization", "Bearer " + secret} }

// status makes a request with a key's secret, and checks the status and the error code of the response. errorCode is "" if the
// response is not an error. The parameter what names the request in failure messages.
func (p *parley) status(t *testing.T, what, secret, method, path string, body any, status int, errorCode string) answer {
	t.Helper()
	a := p.call(method, path, body, with(secret)...)
	if a.status != status || code(a.body) != errorCode {
		t.Errorf("%s: %s %s: %d %s, want %d %s", what, method, path, a.status, a.raw, status, errorCode)
	}
	return a
}

func TestKeys_CreateRotateRevoke_OldSecretsRefused(t *testing.T) {
	p := start(t, echo)
	maker, admin := p.newKey("acme", auth.Live, auth.NewKey{Name: "a key", Scopes: []auth.Scope{auth.Admin}})
	created := p.status(t, "create", admin, "POST", "/v1/keys", map[string]any{
		"name": "Dashboard 🌿", "scopes": []string{"read:sessions", "write:sessions"}, "expiresAt": "2099-12-31T23:59:59.9999+01:00",
	}, 200, "").body
	first, id := created["key"].(string), created["keyId"].(string)
	for field, want := range map[string]any{
		"name": "Dashboard 🌿", "mode": "live", "createdBy": maker.ID, "status": "active", "expiresAt": "2099-12-31T22:59:59.999Z", "lastUsedAt": nil,
	} {
		if created[field] != want {
			t.Errorf("%s is %v, want %v", field, created[field], want)
		}
	}
	if !regexp.MustCompile(`^svc_live_\w{33}$`).MatchString(first) || !strings.HasPrefix(first, created["prefix"].(string)) || len(created["prefix"].(string)) > 15 {
		t.Errorf("the secret is %v, its prefix %v", created["key"], created["prefix"])
	}
	p.status(t, "with the new key", first, "GET", "/v1/sessions", nil, 200, "")

	rotated := p.status(t, "rotate", admin, "POST", "/v1/keys/"+id+"/rotate", nil, 200, "")
	second := rotated.body["key"].(string)
	if rotated.body["keyId"] != id || second == first || rotated.header.Get("Deprecation") != "" {
		t.Errorf("rotated: %s", rotated.raw)
	}
	until, err := time.Parse(time.RFC3339, rotated.body["previousKeyExpiresAt"].(string))
	if left := time.Until(until); err != nil || left > 24*time.Hour || left < 24*time.Hour-time.Minute {
		t.Errorf("the previous key expires at %v: %v", rotated.body["previousKeyExpiresAt"], err)
	}
	want := "@" + strconv.FormatInt(until.Add(-24*time.Hour).Unix(), 10)
	old := p.status(t, "with the old secret", first, "GET", "/v1/sessions", nil, 200, "")
	refused := p.status(t, "with the old secret", first, "GET", "/v1/keys", nil, 403, "insufficient_scope")
	if old.header.Get("Deprecation") != want || refused.header.Get("Deprecation") != want {
		t.Errorf("Deprecation is %q and %q, want %q", old.header.Get("Deprecation"), refused.header.Get("Deprecation"), want)
	}
	if a := p.status(t, "with the new secret", second, "GET", "/v1/sessions", nil, 200, ""); a.header.Get("Deprecation") != "" {
		t.Errorf("the new secret is deprecated: %v", a.header)
	}

	third := p.status(t, "rotate again", admin, "POST", "/v1/keys/"+id+"/rotate", map[string]any{}, 200, "").body["key"].(string)
	p.status(t, "with the oldest of three secrets", first, "GET", "/v1/sessions", nil, 401, "invalid_token")
	p.status(t, "with the second secret", second, "GET", "/v1/sessions", nil, 200, "")

	revoked := p.status(t, "revoke", admin, "DELETE", "/v1/keys/"+id, nil, 200, "")
	if revoked.raw != `{"keyId":"`+id+`","revoked":true}`+"\n" {
		t.Errorf("revoked: %s", revoked.raw)
	}
	p.status(t, "with the second secret, revoked", second, "GET", "/v1/sessions", nil, 401, "invalid_token")
	p.status(t, "with the newest secret, revoked", third, "GET", "/v1/sessions", nil, 401, "invalid_token")
	p.status(t, "revoke again", admin, "DELETE", "/v1/keys/"+id, nil, 404, "key_not_found")
	p.status(t, "rotate a revoked key", admin, "POST", "/v1/keys/"+id+"/rotate", nil, 404, "key_not_found")

	list := p.status(t, "list", admin, "GET", "/v1/keys", nil, 200, "")
	records := list.body["data"].([]any)
	newest := records[0].(map[string]any)
	if oldest := records[1].(map[string]any); oldest["createdBy"] != "cli" {
		t.Errorf("the key from the command line is %v", oldest)
	}
	if len(records) != 2 || newest["keyId"] != id || newest["status"] != "revoked" || newest["prefix"] != third[:len(newest["prefix"].(string))] {
		t.Errorf("the list is %s", list.raw)
	}
	if strings.Contains(list.raw, `"key":`) || strings.Contains(list.raw, "hash") || strings.Contains(list.raw, "previousKeyExpiresAt") {
		t.Errorf("the list shows a secret: %s", list.raw)
	}
	p.status(t, "revoke itself", admin, "DELETE", "/v1/keys/"+records[1].(map[string]any)["keyId"].(string), nil, 200, "")
	p.status(t, "with the key that revoked itself", admin, "GET", "/v1/keys", nil, 401, "invalid_token")
}

func TestListKeys_Pages_EachKeyOnce(t *testing.T) {
	p := start(t, echo)
	admin := p.key("acme", auth.Admin) // the oldest key
	var want []string
	for range 6 {
		made := p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 200, "").body
		want = slices.Insert(want, 0, made["keyId"].(string))
	}
	var got []string
	query := "?limit=3"
	for pages := 1; ; pages++ {
		a := p.status(t, "list", admin, "GET", "/v1/keys"+query, nil, 200, "")
		for _, record := range a.body["data"].([]any) {
			got = append(got, record.(map[string]any)["keyId"].(string))
		}
		pagination := a.body["pagination"].(map[string]any)
		if pagination["hasMore"] == false {
			if pages != 3 || pagination["nextCursor"] != nil {
				t.Errorf("page %d is the last page: %s", pages, a.raw)
			}
			break
		}
		query = "?limit=3&cursor=" + pagination["nextCursor"].(string)
		last := got[len(got)-1]
		p.status(t, "revoke the last key of the page", admin, "DELETE", "/v1/keys/"+last, nil, 200, "")
	}
	if len(got) != 7 || !slices.Equal(got[:6], want) {
		t.Errorf("the keys are %q, want %q and the admin key", got, want)
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "cursor=": "cursor", "cursor=0": "cursor", "cursor=-1": "cursor",
		"cursor=" + want[0]: "cursor", "cursor=999999999999999999": "cursor", "before=1": "before",
	} {
		a := p.status(t, query, admin, "GET", "/v1/keys?"+query, nil, 400, "validation_error")
		if a.body["error"].(map[string]any)["field"] != field {
			t.Errorf("%s: %s", query, a.raw)
		}
	}
}

func TestCreateKey_QuotaReached_429(t *testing.T) {
	p := start(t, echo, withTiers(t, `{"pro":{"keys":3}}`))
	admin := p.key("acme", auth.Admin)
	var ids []string
	for range 2 {
		made := p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 200, "").body
		ids = append(ids, made["keyId"].(string))
	}
	refused := p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 429, "quota_exceeded")
	fields := refused.body["error"].(map[string]any)
	if fields["quota"] != "keys" || fields["used"] != 3.0 || fields["limit"] != 3.0 || refused.header.Get("Retry-After") != "" ||
		refused.header.Get("X-RateLimit-Limit") != "300" {
		t.Errorf("%v %s", refused.header, refused.raw)
	}
	p.status(t, "rotate", admin, "POST", "/v1/keys/"+ids[0]+"/rotate", nil, 200, "")
	p.status(t, "revoke", admin, "DELETE", "/v1/keys/"+ids[0], nil, 200, "")
	p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 200, "")
}

func TestCreateKey_InvalidBody_400(t *testing.T) {
	p := start(t, echo)
	admin := p.key("acme", auth.Admin)
	for name, test := range map[string]struct {
		body  any
		field string
	}{
		"400_no_body":            {nil, "name"},
		"400_no_name":            {`{"scopes":["admin"]}`, "name"},
		"400_empty_name":         {`{"name":"","scopes":["admin"]}`, "name"},
		"400_long_name":          {map[string]any{"name": strings.Repeat("ä", 101), "scopes": []string{"admin"}}, "name"},
		"400_name_with_newline":  {`{"name":"a\nb","scopes":["admin"]}`, "name"},
		"400_name_is_a_number":   {`{"name":1,"scopes":["admin"]}`, "name"},
		"400_no_scopes":          {`{"name":"n"}`, "scopes"},
		"400_empty_scopes":       {`{"name":"n","scopes":[]}`, "scopes"},
		"400_unknown_scope":      {`{"name":"n","scopes":["admin","everything"]}`, "scopes"},
		"400_scope_twice":        {`{"name":"n","scopes":["admin","admin"]}`, "scopes"},
		"400_scope_is_a_number":  {`{"name":"n","scopes":["admin",1]}`, "scopes.1"},
		"400_scopes_is_a_string": {`{"name":"n","scopes":"admin"}`, "scopes"},
		"400_expiry_in_the_past": {`{"name":"n","scopes":["admin"],"expiresAt":"2020-01-01T00:00:00Z"}`, "expiresAt"},
		"400_expiry_has_no_zone": {`{"name":"n","scopes":["admin"],"expiresAt":"2099-01-01T00:00:00"}`, "expiresAt"},
		"400_expiry_is_a_date":   {`{"name":"n","scopes":["admin"],"expiresAt":"2099-01-01"}`, "expiresAt"},
		"400_expiry_is_null":     {`{"name":"n","scopes":["admin"],"expiresAt":null}`, "expiresAt"},
		"400_expiry_is_empty":    {`{"name":"n","scopes":["admin"],"expiresAt":""}`, "expiresAt"},
		"400_unknown_field_mode": {`{"name":"n","scopes":["admin"],"mode":"test"}`, "mode"},
		"400_unknown_field_tier": {`{"name":"n","scopes":["admin"],"tier":"enterprise"}`, "tier"},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.status(t, name, admin, "POST", "/v1/keys", test.body, 400, "validation_error")
			if field := a.body["error"].(map[string]any)["field"]; field != test.field {
				t.Errorf("the field is %v, want %s: %s", field, test.field, a.raw)
			}
		})
	}
	p.status(t, "rotate with an unknown field", admin, "POST", "/v1/keys/key_0000000000000000/rotate", `{"now":true}`, 400, "validation_error")
	if n := len(p.status(t, "list", admin, "GET", "/v1/keys", nil, 200, "").body["data"].([]any)); n != 1 {
		t.Errorf("after the refused requests there are %d keys, want 1", n)
	}
}

func TestKeys_RevokeOrRotateUnknown_404(t *testing.T) {
	p := start(t, echo)
	admin := p.key("acme", auth.Admin)
	foreign, _ := p.newKey("rival", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
	test, _ := p.newKey("acme", auth.Test, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
	declared, err := p.keys.Verify(t.Context(), adminKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]struct{ secret, id string }{
		"404_other_account":  {admin, foreign.ID},
		"404_other_mode":     {admin, test.ID},
		"404_unknown_key":    {admin, "key_0000000000000000"},
		"404_malformed_key":  {admin, "key_1"},
		"404_user_id_as_key": {admin, "user_0000000000000000"},
		"404_admin_key":      {adminKey, declared.KeyID},
	} {
		t.Run(name, func(t *testing.T) {
			p.status(t, name, k.secret, "DELETE", "/v1/keys/"+k.id, nil, 404, "key_not_found")
			p.status(t, name, k.secret, "POST", "/v1/keys/"+k.id+"/rotate", nil, 404, "key_not_found")
		})
	}
	if a := p.status(t, "list with the admin key", adminKey, "GET", "/v1/keys", nil, 200, ""); a.raw != `{"data":[],"pagination":{"hasMore":false,"nextCursor":null}}`+"\n" {
		t.Errorf("the list contains the admin key: %s", a.raw)
	}
	made := p.status(t, "create with the admin key", adminKey, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 200, "")
	if made.body["createdBy"] != "declared" {
		t.Errorf("the key is %s, want createdBy declared", made.raw)
	}
}

// describedRoute is a route under /v1 with the scope that openapi.yaml names for it.
type describedRoute struct {
	method, path string
	scope        auth.Scope
}

// describedRoutes returns each route of openapi.yaml that needs a scope. The paths contain ids of the right form that do not
// exist. The handshake is left out: it needs no scope, because the server checks the scope of each frame.
func describedRoutes(t *testing.T) (all []describedRoute) {
	id := map[string]string{"sessionId": "session_", "messageId": "msg_", "keyId": "key_"}
	for path, item := range documents.openAPI.Paths.Map() {
		if !strings.HasPrefix(path, "/v1/") || path == "/v1/stream" {
			continue
		}
		concrete := regexp.MustCompile(`{(\w+)}`).ReplaceAllStringFunc(path, func(name string) string {
			return id[strings.Trim(name, "{}")] + strings.Repeat("0", 16)
		})
		for method, operation := range item.Operations() {
			if operation.Security == nil || len(*operation.Security) != 1 || len((*operation.Security)[0]["key"]) != 1 {
				t.Errorf("openapi.yaml: %s %s does not name one scope", method, path)
				continue
			}
			all = append(all, describedRoute{method, concrete, auth.Scope((*operation.Security)[0]["key"][0])})
		}
	}
	return all
}

var everyScope = []auth.Scope{
	auth.ReadSessions, auth.WriteSessions, auth.ReadMessages, auth.WriteMessages, auth.ReadAnalytics, auth.Admin,
}

func TestScopes_EachRoute_403WithoutScope(t *testing.T) {
	p := start(t, echo)
	routes := describedRoutes(t)
	for _, scope := range everyScope {
		secret := p.key("acme", scope)
		for _, r := range routes {
			a := p.call(r.method, r.path, nil, with(secret)...)
			if scope == r.scope || scope == auth.Admin {
				if !slices.Contains([]int{200, 204, 400, 404}, a.status) {
					t.Errorf("%s %s with %s: %d %s", r.method, r.path, scope, a.status, a.raw)
				}
				continue
			}
			e, _ := a.body["error"].(map[string]any)
			if a.status != 403 || e["code"] != "insufficient_scope" || e["requiredScope"] != string(r.scope) {
				t.Errorf("%s %s with %s: %d %s, want 403 insufficient_scope", r.method, r.path, scope, a.status, a.raw)
			}
		}
	}
}

func TestScopes_EachFrame_ErrorWithoutScope(t *testing.T) {
	p := start(t, echo)
	for _, scope := range everyScope {
		s, err := p.tryDial(p.url, websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + p.key("acme", scope)}}})
		if err != nil {
			t.Fatalf("the handshake with %s: %v", scope, err)
		}
		s.next("welcome")
		for kind, needs := range map[string]auth.Scope{
			"subscribe": auth.ReadMessages, "send": auth.WriteMessages, "cancel": auth.WriteMessages,
		} {
			request := map[string]any{"type": kind, "id": kind, "sessionId": "session_0000000000000000"}
			switch kind {
			case "send":
				request["content"] = "hello"
			case "cancel":
				request["messageId"] = "msg_0000000000000000"
			}
			s.must(request)
			want := "insufficient_scope"
			if scope == needs || scope == auth.Admin {
				want = "session_not_found"
			}
			if f := s.next("error"); f.code != want || want == "insufficient_scope" && !strings.Contains(string(f.Error), `"requiredScope":"`+string(needs)+`"`) {
				t.Errorf("%s with %s: %s, want %s", kind, scope, f.Error, want)
			}
		}
		s.must(map[string]any{"type": "ping", "id": "p"}) // ping and unsubscribe need no scope
		s.next("pong")
		s.must(map[string]any{"type": "unsubscribe", "id": "u", "sessionId": "session_0000000000000000"})
		s.next("unsubscribed")
		_ = s.conn.CloseNow()
	}
}

func TestModes_DataOfOtherMode_404(t *testing.T) {
	p := start(t, echo)
	_, live := p.newKey("acme", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
	_, test := p.newKey("acme", auth.Test, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
	if !strings.HasPrefix(test, "svc_test_") {
		t.Fatal("the secret of a test key does not begin with svc_test_")
	}
	for name, k := range map[string]struct{ mine, theirs, mode string }{
		"404_live_data_with_a_test_key": {live, test, "live"}, "404_test_data_with_a_live_key": {test, live, "test"},
	} {
		t.Run(name, func(t *testing.T) {
			session := p.status(t, "create", k.mine, "POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, 200, "").body["sessionId"].(string)
			at := "/v1/sessions/" + session
			reply := p.status(t, "send", k.mine, "POST", at+"/messages", `{"content":"hello"}`, 200, "").body["messageId"].(string)
			made := p.status(t, "create a key", k.mine, "POST", "/v1/keys", `{"name":"n","scopes":["read:sessions"]}`, 200, "")
			if made.body["mode"] != k.mode || !strings.HasPrefix(made.body["key"].(string), "svc_"+k.mode+"_") {
				t.Errorf("a %s key created the key %s", k.mode, made.raw)
			}
			for _, r := range []struct{ method, path, body, code string }{
				{"GET", at, "", "session_not_found"}, {"DELETE", at, "", "session_not_found"},
				{"POST", at + "/messages", `{"content":"hello"}`, "session_not_found"},
				{"GET", at + "/messages", "", "session_not_found"}, {"DELETE", at + "/messages", "", "session_not_found"},
				{"GET", at + "/messages/" + reply, "", "session_not_found"},
				{"GET", at + "/messages/" + reply + "/stream", "", "session_not_found"},
				{"POST", at + "/messages/" + reply + "/cancel", "", "session_not_found"},
				{"POST", "/v1/stream/tickets", `{"sessionId":"` + session + `"}`, "session_not_found"},
				{"DELETE", "/v1/keys/" + made.body["keyId"].(string), "", "key_not_found"},
				{"POST", "/v1/keys/" + made.body["keyId"].(string) + "/rotate", "", "key_not_found"},
			} {
				var body any
				if r.body != "" {
					body = r.body
				}
				p.status(t, name, k.theirs, r.method, r.path, body, 404, r.code)
			}
			if list := p.status(t, "list", k.theirs, "GET", "/v1/sessions", nil, 200, ""); strings.Contains(list.raw, session) {
				t.Errorf("the session is listed: %s", list.raw)
			}
			p.status(t, "the session still exists", k.mine, "GET", at, nil, 200, "")
			p.status(t, "the created key still works", made.body["key"].(string), "GET", at, nil, 200, "")
		})
	}
}

func TestKeys_UsedKey_HasLastUsedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		secret := p.key("acme", auth.Admin)
		time.Sleep(time.Hour)
		used := time.Now().UTC()
		p.call("GET", "/v1/keys", nil, with(secret)...)
		time.Sleep(2 * time.Second)
		a := p.call("GET", "/v1/keys", nil, with(secret)...)
		if record := a.body["data"].([]any)[0].(map[string]any); record["lastUsedAt"] != used.Format("2006-01-02T15:04:05.000Z") {
			t.Errorf("got %s, want lastUsedAt %v", a.raw, used)
		}
	})
}

// logged is a log that tests can read while the server writes to it.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestKeys_Secrets_NotInLaterResponsesOrLog(t *testing.T) {
	var log logged
	p := start(t, echo, logTo(&log))
	admin := p.key("acme", auth.Admin)
	created := p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"n","scopes":["admin"]}`, 200, "").body
	rotated := p.status(t, "rotate", admin, "POST", "/v1/keys/"+created["keyId"].(string)+"/rotate", nil, 200, "").body
	shown := []string{
		p.status(t, "use", created["key"].(string), "GET", "/v1/keys", nil, 200, "").raw,
		p.status(t, "revoke", rotated["key"].(string), "DELETE", "/v1/keys/"+created["keyId"].(string), nil, 200, "").raw,
		p.status(t, "refuse", rotated["key"].(string), "GET", "/v1/keys", nil, 401, "invalid_token").raw,
		p.status(t, "unknown secret", "svc_live_nonsense", "GET", "/v1/keys", nil, 401, "invalid_token").raw,
		log.String(),
	}
	for _, secret := range []any{admin, created["key"], rotated["key"], "svc_live_nonsense"} {
		for _, text := range shown {
			if strings.Contains(text, secret.(string)) {
				t.Errorf("a secret is in %s", text)
			}
		}
	}
}
