package server_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"parley/auth"
)

// specRow is a request and the response that the public interface promises. In path, {id} stands for a session, {other} for a
// session of another account, {small} for a session with a window of 100 tokens, {reply} for a reply, {key} for a key and
// {foreignKey} for a key of another account.
type specRow struct {
	method, path string
	body         any
	headers      []string
	status       int
	code         string         // of the error; "" if the response is not an error
	has          map[string]any // members of the response or of the error; nil allows any value
}

// specErrors returns rows for errors that several operations share.
func specErrors() map[string]specRow {
	return map[string]specRow{
		"400_validation_error_missing_field": {"POST", "/v1/sessions", `{}`, nil, 400, "validation_error", map[string]any{"field": "userId"}},
		"400_validation_error_user_id":       {"POST", "/v1/sessions", map[string]any{"userId": "x"}, nil, 400, "validation_error", map[string]any{"field": "userId"}},
		"401_invalid_token_missing":          {"GET", "/v1/sessions", nil, []string{"Authorization", ""}, 401, "invalid_token", nil},
		"401_invalid_token_unknown":          {"GET", "/v1/sessions", nil, with(auth.NewSecret("live")), 401, "invalid_token", nil},
		"404_session_not_found":              {"GET", "/v1/sessions/" + noSession, nil, nil, 404, "session_not_found", nil},
		"404_foreign_account":                {"GET", "/v1/sessions/{other}", nil, nil, 404, "session_not_found", nil},
		"413_context_overflow": {"POST", "/v1/sessions/{small}/messages", content(ofTokens(100)), nil, 413, "context_overflow",
			map[string]any{"currentTokens": 132.0, "maxTokens": 100.0}},
	}
}

// specSessions returns rows for the operations on sessions and for their configuration.
func specSessions() map[string]specRow {
	return map[string]specRow{
		"200_create_session":         {"POST", "/v1/sessions", map[string]any{"userId": user, "metadata": map[string]any{"a": 1}}, nil, 200, "", created()},
		"200_get_session":            {"GET", "/v1/sessions/{id}", nil, nil, 200, "", fields("sessionId", "userId", "createdAt", "expiresAt", "lastActivity", "messageCount", "tokenUsage", "metadata")},
		"404_get_malformed_id":       {"GET", "/v1/sessions/x", nil, nil, 404, "session_not_found", nil},
		"200_list_sessions":          {"GET", "/v1/sessions?limit=1", nil, nil, 200, "", fields("data", "pagination")},
		"200_list_sessions_cursor":   {"GET", "/v1/sessions?cursor={id}", nil, nil, 200, "", fields("data", "pagination")},
		"404_delete_unknown_session": {"DELETE", "/v1/sessions/" + noSession, nil, nil, 404, "session_not_found", nil},
		"404_delete_foreign_account": {"DELETE", "/v1/sessions/{other}", nil, nil, 404, "session_not_found", nil},
		"200_max_tokens":             {"POST", "/v1/sessions", config("maxTokens", 8192), nil, 200, "", created()},
		"200_compression_enabled":    {"POST", "/v1/sessions", config("compressionEnabled", false), nil, 200, "", created()},
		"200_retention_fifo":         {"POST", "/v1/sessions", config("retentionPolicy", "fifo"), nil, 200, "", created()},
		"200_retention_priority":     {"POST", "/v1/sessions", config("retentionPolicy", "priority"), nil, 200, "", created()},
		"200_retention_semantic":     {"POST", "/v1/sessions", config("retentionPolicy", "semantic"), nil, 200, "", created()},
		"400_retention_unknown":      {"POST", "/v1/sessions", config("retentionPolicy", "lru"), nil, 400, "validation_error", map[string]any{"field": "contextConfig.retentionPolicy"}},
	}
}

// specMessages returns rows for the operations on messages.
func specMessages() map[string]specRow {
	return map[string]specRow{
		"200_history_default":         {"GET", "/v1/sessions/{id}/messages", nil, nil, 200, "", fields("data", "pagination")},
		"200_history_limit_100":       {"GET", "/v1/sessions/{id}/messages?limit=100", nil, nil, 200, "", fields("data", "pagination")},
		"400_history_limit_101":       {"GET", "/v1/sessions/{id}/messages?limit=101", nil, nil, 400, "validation_error", map[string]any{"field": "limit"}},
		"200_history_cursor":          {"GET", "/v1/sessions/{id}/messages?cursor={reply}", nil, nil, 200, "", fields("data", "pagination")},
		"200_history_asc":             {"GET", "/v1/sessions/{id}/messages?order=asc", nil, nil, 200, "", fields("data", "pagination")},
		"200_history_desc":            {"GET", "/v1/sessions/{id}/messages?order=desc", nil, nil, 200, "", fields("data", "pagination")},
		"400_history_unknown_order":   {"GET", "/v1/sessions/{id}/messages?order=random", nil, nil, 400, "validation_error", map[string]any{"field": "order"}},
		"404_history_foreign_account": {"GET", "/v1/sessions/{other}/messages", nil, nil, 404, "session_not_found", nil},
		"200_send":                    {"POST", "/v1/sessions/{id}/messages", content("x"), nil, 200, "", map[string]any{"messageId": nil, "sessionId": nil, "role": "assistant", "content": nil, "tokens": nil, "createdAt": nil}},
		"200_send_role_user":          {"POST", "/v1/sessions/{id}/messages", content("x", "role", "user"), nil, 200, "", map[string]any{"role": "assistant"}},
		"200_send_role_system":        {"POST", "/v1/sessions/{id}/messages", content("x", "role", "system"), nil, 200, "", map[string]any{"role": "assistant"}},
		"400_send_role_assistant":     {"POST", "/v1/sessions/{id}/messages", content("x", "role", "assistant"), nil, 400, "validation_error", map[string]any{"field": "role"}},
		"200_send_streaming":          {"POST", "/v1/sessions/{id}/messages", content("x", "streaming", true), nil, 200, "", map[string]any{"status": "streaming", "stream": nil}},
		"200_send_metadata":           {"POST", "/v1/sessions/{id}/messages", content("x", "metadata", map[string]any{"a": 1}), nil, 200, "", map[string]any{"role": "assistant"}},
		"400_send_no_content":         {"POST", "/v1/sessions/{id}/messages", `{}`, nil, 400, "validation_error", map[string]any{"field": "content"}},
		"200_send_10000_characters":   {"POST", "/v1/sessions/{id}/messages", content(strings.Repeat("x", 10_000)), nil, 200, "", map[string]any{"role": "assistant"}},
		"400_send_10001_characters":   {"POST", "/v1/sessions/{id}/messages", content(strings.Repeat("é", 10_001)), nil, 400, "validation_error", map[string]any{"field": "content"}},
		"404_send_foreign_account":    {"POST", "/v1/sessions/{other}/messages", content("x"), nil, 404, "session_not_found", nil},
	}
}

// specKeys returns rows for the operations on keys and for the scopes.
func specKeys(p *parley) map[string]specRow {
	return map[string]specRow{
		"200_create_key":             {"POST", "/v1/keys", map[string]any{"name": "n", "scopes": []string{"admin"}, "expiresAt": "2099-01-01T00:00:00Z"}, nil, 200, "", fields("keyId", "key", "scopes", "expiresAt")},
		"200_rotate_key":             {"POST", "/v1/keys/{key}/rotate", nil, nil, 200, "", fields("keyId", "key", "previousKeyExpiresAt")},
		"404_rotate_unknown_key":     {"POST", "/v1/keys/key_0123456789abcdef/rotate", nil, nil, 404, "key_not_found", nil},
		"404_revoke_foreign_account": {"DELETE", "/v1/keys/{foreignKey}", nil, nil, 404, "key_not_found", nil},
		"403_scope_read_sessions":    {"GET", "/v1/sessions", nil, with(p.key("a", auth.ReadMessages)), 403, "insufficient_scope", map[string]any{"requiredScope": "read:sessions"}},
		"403_scope_write_sessions":   {"DELETE", "/v1/sessions/{id}", nil, with(p.key("b", auth.ReadSessions)), 403, "insufficient_scope", map[string]any{"requiredScope": "write:sessions"}},
		"403_scope_read_messages":    {"GET", "/v1/sessions/{id}/messages", nil, with(p.key("c", auth.WriteMessages)), 403, "insufficient_scope", map[string]any{"requiredScope": "read:messages"}},
		"403_scope_write_messages":   {"POST", "/v1/sessions/{id}/messages", content("x"), with(p.key("d", auth.ReadMessages)), 403, "insufficient_scope", map[string]any{"requiredScope": "write:messages"}},
		"403_scope_admin":            {"GET", "/v1/keys", nil, with(p.key("e", auth.ReadAnalytics)), 403, "insufficient_scope", map[string]any{"requiredScope": "admin"}},
		"404_unknown_version":        {"GET", "/v2/sessions", nil, nil, 404, "not_found", nil},
	}
}

// TestPublicInterface_EachRequest_AsSpecified makes the requests of the tables above. Other tests cover limits, load and
// restarts.
func TestPublicInterface_EachRequest_AsSpecified(t *testing.T) {
	p := start(t, echo)
	session, other := p.session(), "Bearer "+p.key("other", auth.Admin)
	reply := p.send(session, "hello")["messageId"].(string)
	foreign := p.call("POST", "/v1/sessions", map[string]any{"userId": user}, "Authorization", other).body["sessionId"].(string)
	key := p.must("POST", "/v1/keys", map[string]any{"name": "a", "scopes": []string{"admin"}})["keyId"].(string)
	foreignKey, _ := p.newKey("acme", auth.Live, auth.NewKey{Name: "b", Scopes: []auth.Scope{auth.Admin}, ExpiresAt: time.Now().Add(time.Hour)})
	small := p.small(false)
	names := strings.NewReplacer("{id}", session, "{other}", foreign, "{reply}", reply, "{key}", key, "{foreignKey}", foreignKey.ID, "{small}", small)
	rows := make(map[string]specRow)
	for _, part := range []map[string]specRow{specErrors(), specSessions(), specMessages(), specKeys(p)} {
		maps.Copy(rows, part)
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			a := p.call(row.method, names.Replace(row.path), row.body, row.headers...)
			members := a.body
			if row.code != "" {
				members, _ = a.body["error"].(map[string]any)
			}
			if a.status != row.status || code(a.body) != row.code {
				t.Fatalf("%d %s", a.status, a.raw)
			}
			for member, want := range row.has {
				if got, ok := members[member]; !ok || want != nil && fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s is %v, want %v: %s", member, got, want, a.raw)
				}
			}
			for _, header := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				if strings.HasPrefix(row.path, "/v1/") && a.header.Get(header) == "" {
					t.Errorf("%s is missing", header)
				}
			}
		})
	}
	t.Run("404_after_delete_session", func(t *testing.T) {
		if d := p.must("DELETE", "/v1/sessions/"+small, nil); d["deleted"] != true || d["sessionId"] != small {
			t.Errorf("deleted: %v", d)
		}
		checkError(t, p.call("DELETE", "/v1/sessions/"+small, nil), 404, "session_not_found", "")
		checkError(t, p.call("GET", "/v1/sessions/"+small+"/messages", nil), 404, "session_not_found", "")
	})
	t.Run("401_after_revoke_key", func(t *testing.T) {
		made := p.must("POST", "/v1/keys", map[string]any{"name": "n", "scopes": []string{"admin"}})
		p.must("DELETE", "/v1/keys/"+made["keyId"].(string), nil)
		checkError(t, p.call("GET", "/v1/sessions", nil, with(made["key"].(string))...), 401, "invalid_token", "")
	})
}

// fields returns a value for specRow.has: members that must be present, with any value.
func fields(names ...string) map[string]any {
	has := make(map[string]any)
	for _, name := range names {
		has[name] = nil
	}
	return has
}

// created returns a value for specRow.has: the members of the response to POST /v1/sessions.
func created() map[string]any {
	has := fields("sessionId", "createdAt", "expiresAt", "tokenUsage")
	has["userId"], has["messageCount"] = user, 0.0
	return has
}

func config(name string, value any) map[string]any {
	return map[string]any{"userId": user, "contextConfig": map[string]any{name: value}}
}
