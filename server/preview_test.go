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

// TestPreview_ManyPagesAtOnce_Refused makes the account build as many pages as it may. A preview then waits like a page.
func TestPreview_ManyPagesAtOnce_Refused(t *testing.T) {
	t.Parallel()
	p := start(t, echo)
	path := "/v1/sessions/" + p.session() + "/context"
	empty := server.FillPages(p.handler, conversation.Owner{Account: "default", Mode: conversation.Live})
	if a := p.call("POST", path, content("x")); a.status != 503 || !strings.Contains(a.raw, "too many large responses") {
		t.Errorf("a preview beside too many pages: %d %s", a.status, a.raw)
	}
	empty()
	for range 3 { // each preview ends its page
		if a := p.call("POST", path, content("x")); a.status != 200 {
			t.Errorf("a preview with room for one page: %d %s", a.status, a.raw)
		}
	}
}
