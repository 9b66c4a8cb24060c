package server_test

import (
	"strings"
	"testing"

	"parley/auth"
	"parley/conversation"
	"parley/server"
)

// previewed is the response to a dry run.
type previewed struct {
	Context  map[string]any
	Messages []struct {
		MessageID, Role, Decision, Reason string
		Tokens                            int
	}
}

func TestPreview_RefusedMessage_SameErrorAsSend(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	const path = "/v1/sessions/{id}/context"
	refusals{
		"400_no_content":      {"POST", path, `{}`, nil, 400, "validation_error", "content"},
		"400_empty_content":   {"POST", path, content(" "), nil, 400, "validation_error", "content"},
		"400_role_assistant":  {"POST", path, content("x", "role", "assistant"), nil, 400, "validation_error", "role"},
		"400_unknown_field":   {"POST", path, content("x", "streaming", true), nil, 400, "validation_error", "streaming"},
		"404_unknown_session": {"POST", "/v1/sessions/" + noSession + "/context", content("x"), nil, 404, "session_not_found", ""},
		"404_foreign_account": {"POST", path, content("x"), []string{"Authorization", "Bearer " + p.key("other", auth.Admin)}, 404, "session_not_found", ""},
	}.run(t, p, session)
	for _, compression := range []bool{true, false} {
		small := p.small(compression)
		checkOverflow(t, p.call("POST", "/v1/sessions/"+small+"/context", content(ofTokens(69))), 69+4+3+25)
		if a := p.call("POST", "/v1/sessions/"+small+"/context", content(ofTokens(68))); a.status != 200 {
			t.Errorf("a message that just fits: %d %s", a.status, a.raw)
		}
		p.send(small, ofTokens(20)) // the message takes 24 tokens, and the reply takes 27
		sent := p.call("POST", messages(small), content(ofTokens(60)))
		if a := p.call("POST", "/v1/sessions/"+small+"/context", content(ofTokens(60))); a.status != sent.status {
			t.Errorf("a send gets %d, and its dry run %d", sent.status, a.status)
		}
	}
}

// TestPages_ManyAtOnce_Refused makes the account build as many pages as it may. A request for a further page is then refused.
func TestPages_ManyAtOnce_Refused(t *testing.T) {
	t.Parallel()
	p := start(t, echo)
	session := p.session()
	requests := []struct {
		method, path string
		body         any
	}{
		{"POST", "/v1/sessions/" + session + "/context", content("x")},
		{"GET", messages(session), nil},
		{"GET", "/v1/sessions", nil},
		{"GET", "/v1/analytics/metrics?startDate=2026-01-01T00:00:00Z&endDate=2026-02-01T00:00:00Z&granularity=hour", nil},
	}
	empty := server.FillPages(p.handler, conversation.Owner{Account: "default", Mode: conversation.Live})
	var answers []<-chan answer
	for _, r := range requests {
		answers = append(answers, p.later(r.method, r.path, r.body))
	}
	for i, from := range answers {
		if a := within(t, "a response", from); a.status != 503 || !strings.Contains(a.raw, "too many large responses") {
			t.Errorf("%s beside too many pages: %d %s", requests[i].path, a.status, a.raw)
		}
	}
	empty()
	for range 3 { // each request ends its page
		for _, r := range requests {
			if a := p.call(r.method, r.path, r.body); a.status != 200 {
				t.Errorf("%s with room for one page: %d %s", r.path, a.status, a.raw)
			}
		}
	}
}
