package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
)

const (
	user      = "user_0123456789abcdef"
	noSession = "session_0123456789abcdef"
	noMessage = "msg_0123456789abcdef"
)

// refusals maps the name of a subtest to a request that the server must refuse.
type refusals map[string]refused

type refused struct {
	method, path string
	body         any
	headers      []string
	status       int
	code, field  string
}

// run makes each request in a subtest. It checks the error, and that the request does not change the session. In a path, {id}
// stands for the session's id.
func (all refusals) run(t *testing.T, p *parley, session string) {
	t.Helper()
	before := p.snapshot(session)
	for name, r := range all {
		t.Run(name, func(t *testing.T) {
			a := p.call(r.method, strings.ReplaceAll(r.path, "{id}", session), r.body, r.headers...)
			checkError(t, a, r.status, r.code, r.field)
			if after := p.snapshot(session); after != before {
				t.Errorf("the request changed the session:\n%s\n%s", before, after)
			}
		})
	}
}

// snapshot returns the bodies of three responses: the session, its newest messages, and the list of sessions.
func (p *parley) snapshot(session string) string {
	p.t.Helper()
	return p.call("GET", "/v1/sessions/"+session, nil).raw +
		p.call("GET", "/v1/sessions/"+session+"/messages", nil).raw + p.call("GET", "/v1/sessions?limit=100", nil).raw
}

var timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

// checkError checks an error response. The error must have the members in extras. Besides those, it may have only the standard
// members.
func checkError(t *testing.T, a answer, status int, code, field string, extras ...string) {
	t.Helper()
	if a.status != status {
		t.Fatalf("got %d %s, want %d %s", a.status, a.raw, status, code)
	}
	e, _ := a.body["error"].(map[string]any)
	m, _ := a.body["meta"].(map[string]any)
	allowed := append([]string{"code", "message", "field", "details", "retryAfter"}, extras...)
	for name := range e {
		if !slices.Contains(allowed, name) {
			t.Errorf("the error has the field %s: %s", name, a.raw)
		}
	}
	for _, name := range extras {
		if _, ok := e[name]; !ok {
			t.Errorf("the error lacks %s: %s", name, a.raw)
		}
	}
	if len(a.body) != 2 || len(m) != 2 || e["code"] != code || m["requestId"] != a.header.Get("X-Request-Id") {
		t.Errorf("got %s, want %s", a.raw, code)
	}
	if text, _ := e["message"].(string); text == "" || !timestamp.MatchString(fmt.Sprint(m["timestamp"])) {
		t.Errorf("the message or the timestamp is missing: %s", a.raw)
	}
	details, _ := e["details"].(map[string]any)
	got, _ := e["field"].(string)
	if got != field || (field != "") != (details != nil) || details != nil && (details["field"] != field || details["reason"] == "") {
		t.Errorf("got %s, want the field %q", a.raw, field)
	}
	if a.header.Get("Content-Type") != "application/json; charset=utf-8" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the headers are %v", a.header)
	}
}

func TestCreateSession_EachBody_ExpectedStatus(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	big := func(n int) string { // metadata of n bytes
		return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}`
	}
	with := func(rest string) string { return `{"userId":"` + user + `",` + rest + `}` }

	t.Run("200_response_members", func(t *testing.T) {
		s := p.must("POST", "/v1/sessions", map[string]any{"userId": user})
		for _, name := range []string{"sessionId", "userId", "createdAt", "expiresAt", "messageCount", "tokenUsage"} {
			if s[name] == nil {
				t.Errorf("%s is missing in %v", name, s)
			}
		}
		created, _ := time.Parse(time.RFC3339, s["createdAt"].(string))
		expires, _ := time.Parse(time.RFC3339, s["expiresAt"].(string))
		if len(s) != 6 || expires.Sub(created) != 24*time.Hour || !conversation.ValidID("session_", s["sessionId"].(string)) {
			t.Errorf("created %v", s)
		}
	})
	for name, body := range map[string]string{
		"200_all_fields":                with(`"metadata":{"a":{"b":[1,null,"ü"]}},"contextConfig":{"maxTokens":64,"compressionEnabled":false,"retentionPolicy":"semantic"}`),
		"200_largest_window":            with(`"contextConfig":{"maxTokens":1000000,"retentionPolicy":"priority"}`),
		"200_empty_configuration":       with(`"contextConfig":{}`),
		"200_metadata_of_16_KiB":        with(`"metadata":` + big(16<<10)),
		"200_spaces_and_surrogate_pair": " \n" + with(`"metadata":{"a":"\ud83d\ude42"}`) + "\r\n ",
		"200_body_of_1_MiB":             with(`"metadata":{}`) + strings.Repeat(" ", 1<<20-len(with(`"metadata":{}`))),
	} {
		t.Run(name, func(t *testing.T) {
			p.must("POST", "/v1/sessions", body)
		})
	}

	bad := refusals{}
	refuse := func(name, body, field string) {
		bad[name] = refused{"POST", "/v1/sessions", body, nil, 400, "validation_error", field}
	}
	refuse("400_user_id_missing", `{}`, "userId")
	refuse("400_user_id_short", `{"userId":"user_0123456789abcde"}`, "userId")
	refuse("400_user_id_malformed", `{"userId":"user_0123456789abcde-"}`, "userId")
	refuse("400_session_id_as_user_id", `{"userId":"session_0123456789abcdef"}`, "userId")
	refuse("400_user_id_null", `{"userId":null}`, "userId")
	refuse("400_user_id_a_number", `{"userId":1}`, "userId")
	refuse("400_unknown_field", with(`"colour":1`), "colour")
	refuse("400_duplicate_field", with(`"userId":"`+user+`"`), "userId")
	refuse("400_field_in_lower_case", `{"userid":"`+user+`"}`, "userid")
	refuse("400_trailing_data", with(`"metadata":{}`)+"{}", "")
	refuse("400_nul", with(`"metadata":{"a":"\u0000"}`), "metadata.a")
	refuse("400_invalid_utf8", with("\"metadata\":{\"a\":\"\xff\"}"), "metadata.a")
	refuse("400_lone_surrogate", with(`"metadata":{"a":"\ud83d"}`), "metadata.a")
	refuse("400_empty_body", "", "userId")
	refuse("400_not_an_object", `[]`, "")
	refuse("400_not_json", `userId=1`, "")
	refuse("400_metadata_a_list", with(`"metadata":[]`), "metadata")
	refuse("400_metadata_null", with(`"metadata":null`), "metadata")
	refuse("400_metadata_over_16_KiB", with(`"metadata":`+big(16<<10+1)), "metadata")
	refuse("400_config_a_string", with(`"contextConfig":"x"`), "contextConfig")
	refuse("400_window_too_small", with(`"contextConfig":{"maxTokens":63}`), "contextConfig.maxTokens")
	refuse("400_window_too_large", with(`"contextConfig":{"maxTokens":1000001}`), "contextConfig.maxTokens")
	refuse("400_window_negative", with(`"contextConfig":{"maxTokens":-64}`), "contextConfig.maxTokens")
	refuse("400_window_a_fraction", with(`"contextConfig":{"maxTokens":64.5}`), "contextConfig.maxTokens")
	refuse("400_window_a_string", with(`"contextConfig":{"maxTokens":"64"}`), "contextConfig.maxTokens")
	refuse("400_compression_a_number", with(`"contextConfig":{"compressionEnabled":1}`), "contextConfig.compressionEnabled")
	refuse("400_policy_unknown", with(`"contextConfig":{"retentionPolicy":"FIFO"}`), "contextConfig.retentionPolicy")
	refuse("400_config_unknown_field", with(`"contextConfig":{"max":1}`), "contextConfig.max")
	good := with(`"metadata":{}`)
	for name, headers := range map[string][]string{
		"415_no_content_type":  {"Content-Type", ""},
		"415_plain_text":       {"Content-Type", "text/plain"},
		"415_form":             {"Content-Type", "application/x-www-form-urlencoded"},
		"415_charset_not_utf8": {"Content-Type", "application/json; charset=latin1"},
		"415_compressed":       {"Content-Encoding", "gzip"},
		"415_invalid_type":     {"Content-Type", "application/json; ="},
	} {
		bad[name] = refused{"POST", "/v1/sessions", good, headers, 415, "unsupported_media_type", ""}
	}
	bad["413_body_over_1_MiB"] = refused{"POST", "/v1/sessions", good + strings.Repeat(" ", 1<<20), nil, 413, "payload_too_large", ""}
	bad.run(t, p, session)
}

func TestGetAndDeleteSession_EachCase_ExpectedStatus(t *testing.T) {
	p := start(t, echo)
	body := map[string]any{"userId": user, "metadata": map[string]any{"plan": "<b>&"}}
	id := p.must("POST", "/v1/sessions", body)["sessionId"].(string)
	t.Run("200_response_members", func(t *testing.T) {
		s := p.must("GET", "/v1/sessions/"+id, nil)
		if s["lastActivity"] != s["createdAt"] || s["metadata"].(map[string]any)["plan"] != "<b>&" || s["stream"].(map[string]any)["cursor"] == "" || len(s) != 11 {
			t.Errorf("got %v", s)
		}
	})
	reply := p.send(id, "hello")["messageId"].(string)
	other := p.key("other", auth.Admin)
	foreign := []string{"Authorization", "Bearer " + other}
	elsewhere := refusals{}
	for name, route := range map[string]string{
		"get": "GET /v1/sessions/%s", "update": "PATCH /v1/sessions/%s", "delete": "DELETE /v1/sessions/%s", "send": "POST /v1/sessions/%s/messages",
		"history": "GET /v1/sessions/%s/messages", "clear": "DELETE /v1/sessions/%s/messages",
		"message": "GET /v1/sessions/%s/messages/" + reply, "cancel": "POST /v1/sessions/%s/messages/" + reply + "/cancel",
		"stream": "GET /v1/sessions/%s/messages/" + reply + "/stream",
	} {
		method, path, _ := strings.Cut(route, " ")
		r := refused{method, fmt.Sprintf(path, id), nil, foreign, 404, "session_not_found", ""}
		if name == "send" {
			r.body = `{"content":"x"}`
		}
		if name == "update" {
			r.body = `{"instructions":"x"}`
		}
		elsewhere["404_foreign_account_"+name] = r
		r.headers = nil
		for kind, bad := range map[string]string{
			"unknown_id": noSession, "malformed_id": "session_0123456789abcde!", "message_id": noMessage, "short_id": "x", "upper_case_id": "SESSION_0123456789abcdef",
		} {
			r.path = fmt.Sprintf(path, bad)
			elsewhere["404_"+kind+"_"+name] = r
		}
	}
	elsewhere.run(t, p, id)
	t.Run("404_everywhere_after_delete", func(t *testing.T) {
		if d := p.must("DELETE", "/v1/sessions/"+id, nil); d["deleted"] != true || d["sessionId"] != id || len(d) != 2 {
			t.Errorf("deleted: %v", d)
		}
		for name, r := range elsewhere {
			if strings.HasPrefix(name, "404_foreign") {
				checkError(t, p.call(r.method, r.path, r.body), 404, "session_not_found", "")
			}
		}
		if list := p.must("GET", "/v1/sessions", nil); len(list["data"].([]any)) != 0 {
			t.Errorf("the list still has the deleted session: %v", list)
		}
	})
}

func TestListSessions_EachQuery_ExpectedPage(t *testing.T) {
	p := start(t, echo)
	const other = "user_zzzzzzzzzzzzzzzz"
	var ids []string // newest first
	for i := range 25 {
		who := user
		if i%5 == 0 {
			who = other
		}
		id := p.must("POST", "/v1/sessions", map[string]any{"userId": who})["sessionId"].(string)
		ids = append([]string{id}, ids...)
	}
	list := func(query string) (got []string, next string) {
		t.Helper()
		a := p.must("GET", "/v1/sessions"+query, nil)
		for _, s := range a["data"].([]any) {
			got = append(got, s.(map[string]any)["sessionId"].(string))
		}
		pagination := a["pagination"].(map[string]any)
		next, _ = pagination["nextCursor"].(string)
		if pagination["hasMore"].(bool) != (next != "") {
			t.Errorf("pagination is %v", pagination)
		}
		return got, next
	}
	check := func(name, query string, want []string, next string) string {
		t.Run(name, func(t *testing.T) {
			got, n := list(query)
			if !slices.Equal(got, want) || n != next {
				t.Errorf("got %v %q, want %v %q", got, n, want, next)
			}
		})
		return next
	}
	next := check("200_default_is_twenty_newest_first", "", ids[:20], ids[19])
	check("200_next_page", "?cursor="+next, ids[20:], "")
	check("200_limit_over_total", "?limit=100", ids, "")
	check("200_limit_equals_total", "?limit=25", ids, "")
	check("200_limit_one", "?limit=1", ids[:1], ids[0])
	check("200_only_the_users_sessions", "?userId="+other, []string{ids[4], ids[9], ids[14], ids[19], ids[24]}, "")
	check("200_second_page_of_a_user", "?limit=2&userId="+other+"&cursor="+ids[9], []string{ids[14], ids[19]}, ids[19])
	check("200_user_without_sessions", "?userId=user_nobodynobodynobo", nil, "")
	p.must("DELETE", "/v1/sessions/"+ids[9], nil)
	check("200_cursor_of_deleted_session", "?limit=2&cursor="+ids[9], ids[10:12], ids[11])
	t.Run("200_no_sessions_of_other_accounts", func(t *testing.T) {
		a := p.call("GET", "/v1/sessions", nil, "Authorization", "Bearer "+p.key("other", auth.ReadSessions))
		if a.status != 200 || !strings.HasPrefix(a.raw, `{"data":[],"pagination":{"hasMore":false,"nextCursor":null}`) {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
	bad := refusals{}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=-1": "limit", "limit=x": "limit", "limit=": "limit", "limit=1.5": "limit",
		"cursor=x": "cursor", "cursor=": "cursor", "cursor=" + noMessage: "cursor", "userId=x": "userId", "userId=" + noSession: "userId",
	} {
		bad["400_"+query] = refused{"GET", "/v1/sessions?" + query, nil, nil, 400, "validation_error", field}
	}
	bad.run(t, p, ids[0])
}

func TestAuthorization_EachHeader_ExpectedStatus(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	bad := refusals{}
	for name, header := range map[string]string{
		"missing": "", "empty": "Bearer ", "no_scheme": adminKey, "wrong_scheme": "Basic " + adminKey, "malformed": "Bearer svc_live_x",
		"unknown": "Bearer " + auth.NewSecret("live"), "mistyped": "Bearer " + adminKey + "x", "two_keys": "Bearer " + adminKey + " " + adminKey,
	} {
		bad["401_"+name] = refused{"GET", "/v1/sessions/{id}", nil, []string{"Authorization", header}, 401, "invalid_token", ""}
	}
	bad.run(t, p, session)
	t.Run("401_has_www_authenticate", func(t *testing.T) {
		a := p.call("GET", "/v1/sessions", nil, "Authorization", "")
		if got := a.header.Get("WWW-Authenticate"); got != "Bearer" {
			t.Errorf("WWW-Authenticate is %q", got)
		}
	})
	t.Run("200_scheme_in_any_case", func(t *testing.T) {
		if a := p.call("GET", "/v1/sessions", nil, "Authorization", "bearer "+adminKey); a.status != 200 {
			t.Error(a.raw)
		}
	})
	t.Run("403_insufficient_scope", func(t *testing.T) {
		for i, test := range []struct {
			route string
			scope auth.Scope
		}{
			{"POST /v1/sessions", auth.WriteSessions}, {"GET /v1/sessions", auth.ReadSessions}, {"GET /v1/sessions/" + noSession, auth.ReadSessions},
			{"DELETE /v1/sessions/" + noSession, auth.WriteSessions}, {"POST /v1/sessions/" + noSession + "/messages", auth.WriteMessages},
			{"GET /v1/sessions/" + noSession + "/messages", auth.ReadMessages}, {"DELETE /v1/sessions/" + noSession + "/messages", auth.WriteMessages},
			{"GET /v1/sessions/" + noSession + "/messages/" + noMessage, auth.ReadMessages},
			{"POST /v1/sessions/" + noSession + "/messages/" + noMessage + "/cancel", auth.WriteMessages},
			{"GET /v1/sessions/" + noSession + "/messages/" + noMessage + "/stream", auth.ReadMessages}, {"POST /v1/stream/tickets", auth.ReadMessages},
		} {
			method, path, _ := strings.Cut(test.route, " ")
			var others []auth.Scope
			for _, s := range []auth.Scope{auth.ReadSessions, auth.WriteSessions, auth.ReadMessages, auth.WriteMessages, auth.ReadAnalytics} {
				if s != test.scope {
					others = append(others, s)
				}
			}
			a := p.call(method, path, nil, "Authorization", "Bearer "+p.key(fmt.Sprint("others", i), others...))
			checkError(t, a, 403, "insufficient_scope", "", "requiredScope")
			if a.body["error"].(map[string]any)["requiredScope"] != string(test.scope) {
				t.Errorf("%s: %s", test.route, a.raw)
			}
			a = p.call(method, path, nil, "Authorization", "Bearer "+p.key(fmt.Sprint("just", i), test.scope))
			if a.status == 403 || a.status == 401 {
				t.Errorf("%s with %s: %s", test.route, test.scope, a.raw)
			}
		}
	})
}

func TestUnknownRoute_404Or405(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	bad := refusals{}
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v2/sessions", "/v1/session", "/v1/sessions/", "/v1/sessions/{id}/", "/v1/sessions/{id}/message", "/V1/sessions",
		"/v1/sessions/{id}/messages/" + noMessage + "/x", "/v1//sessions", "/v1/stream/x",
	} {
		bad["404_"+path] = refused{"GET", path, nil, nil, 404, "not_found", ""}
	}
	bad.run(t, p, session)
	for path, allow := range map[string]string{
		"/v1/sessions": "GET, POST", "/v1/sessions/{id}": "DELETE, GET, PATCH", "/v1/sessions/{id}/messages": "DELETE, GET, POST",
		"/v1/sessions/{id}/messages/" + noMessage: "GET", "/v1/sessions/{id}/messages/" + noMessage + "/cancel": "POST",
		"/v1/stream": "GET", "/v1/stream/tickets": "POST", "/healthz": "GET",
	} {
		t.Run("405_allow_"+path, func(t *testing.T) {
			a := p.call("PUT", strings.ReplaceAll(path, "{id}", session), `{}`)
			checkError(t, a, 405, "method_not_allowed", "")
			got := strings.Split(a.header.Get("Allow"), ", ")
			slices.Sort(got)
			if strings.Join(got, ", ") != allow {
				t.Errorf("Allow is %q", a.header.Get("Allow"))
			}
		})
	}
}

func TestRequestIDs_KeptIfValidElseGenerated(t *testing.T) {
	p := start(t, echo)
	for name, test := range map[string]struct {
		id   string
		kept bool
	}{
		"kept":               {"trace-1_2.3/4", true},
		"kept_128_bytes":     {strings.Repeat("x", 128), true},
		"generated":          {"", false},
		"replaced_129_bytes": {strings.Repeat("x", 129), false},
		"replaced_space":     {"a b", false},
		"replaced_unicode":   {"ü", false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/sessions", "/v1/nothing", "/healthz"} {
				got := p.call("GET", path, nil, "X-Request-Id", test.id).header.Get("X-Request-Id")
				if kept := got == test.id; kept != test.kept || got == "" {
					t.Errorf("%s: sent %q, got %q", path, test.id, got)
				}
			}
		})
	}
}

func TestPanic_500WithoutDetails(t *testing.T) {
	p := start(t, echo, func(o *server.Options, _ *service.Options) {
		o.Ready = func(context.Context) error { panic("secret detail") }
	})
	a := p.call("GET", "/readyz", nil)
	checkError(t, a, 500, "internal_error", "")
	if strings.Contains(a.raw, "secret") || strings.Contains(a.raw, "goroutine") {
		t.Errorf("the response shows the cause: %s", a.raw)
	}
	if p.call("GET", "/healthz", nil).status != http.StatusOK {
		t.Error("the server does not work after the panic")
	}
}

func TestReadyz_StoreFailsOrDrain_503(t *testing.T) {
	ready := make(chan error, 1)
	p := start(t, echo, func(o *server.Options, _ *service.Options) {
		o.Ready = func(context.Context) error { return <-ready }
	})
	ready <- nil
	if a := p.call("GET", "/readyz", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.raw)
	}
	ready <- fmt.Errorf("the disk is full of secrets")
	a := p.call("GET", "/readyz", nil)
	checkError(t, a, 503, "service_unavailable", "", "retryAfter")
	if a.header.Get("Retry-After") != "1" || strings.Contains(a.raw, "secret") {
		t.Errorf("%v %s", a.header, a.raw)
	}
	ready <- fmt.Errorf("%w: writing /secret/parley.db", conversation.ErrStoreFull)
	if a := p.call("GET", "/readyz", nil); a.status != 503 || !strings.Contains(a.raw, "disk is full") || strings.Contains(a.raw, "secret") {
		t.Errorf("on a full disk: %d %s", a.status, a.raw)
	}
	p.handler.BeginDrain()
	checkError(t, p.call("GET", "/readyz", nil), 503, "service_unavailable", "")
	if a := p.call("GET", "/healthz", nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

// decodeInto decodes the JSON body of a response into a value of type T.
func decodeInto[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.raw), &v); err != nil {
		t.Fatalf("%v in %s", err, a.raw)
	}
	return v
}
