package server_test

import (
	"slices"
	"testing"

	"parley/auth"
)

// previewed is the answer of a dry run.
type previewed struct {
	Context  map[string]any
	Messages []struct {
		MessageID, Role, Decision, Reason string
		Tokens                            int
	}
}

func TestADryRunShowsWhatASendWouldSend(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.small(true)
	preview := func(text string) previewed {
		t.Helper()
		before := p.snapshot(session)
		a := p.call("POST", "/v1/sessions/"+session+"/context", content(text))
		if a.status != 200 || p.snapshot(session) != before {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		return decodeInto[previewed](t, a)
	}
	exchange := func(text, reply string) map[string]any {
		t.Helper()
		sent := p.later("POST", messages(session), content(text))
		c := model.next(t)
		c.say(reply)
		c.end()
		return decodeInto[message](t, within(t, "the answer", sent)).Context
	}
	if got := preview(ofTokens(20)); len(got.Messages) != 1 || got.Messages[0].Decision != "kept" || got.Messages[0].Tokens != 24 || got.Messages[0].MessageID != "" {
		t.Errorf("of an empty session: %+v", got)
	}
	exchange("one "+ofTokens(10), "two "+ofTokens(10)) // 15 each
	exchange("3333", "")                               // 5, and a reply without text
	exchange("5555"+ofTokens(5), "6666"+ofTokens(5))   // 10 each
	for _, tokens := range []int{1, 10, 13, 14, 30, 60, 68} {
		got := preview(ofTokens(tokens))
		h := p.history(session)
		var decisions []string
		kept := 0
		for i, m := range got.Messages {
			decisions = append(decisions, m.Decision)
			if m.Decision == "kept" {
				kept++
			}
			if n := len(got.Messages); i < n-1 && m.MessageID != h[len(h)-n+1+i].MessageID {
				t.Errorf("%d tokens: message %d is %+v", tokens, i, m)
			}
		}
		if last := got.Messages[len(got.Messages)-1]; last.MessageID != "" || last.Role != "user" || last.Tokens != tokens+4 {
			t.Errorf("%d tokens: the last is %+v", tokens, last)
		}
		if got.Context["kept"].(map[string]any)["count"] != float64(kept) {
			t.Errorf("%d tokens: %v, and the report %v", tokens, decisions, got.Context)
		}
		if tokens == 1 && !slices.Contains(decisions, "skipped") {
			t.Errorf("the reply without text is not skipped: %v", decisions)
		}
		if tokens == 60 && !slices.Contains(decisions, "dropped") {
			t.Errorf("nothing is dropped: %v", decisions)
		}
	}
	// The report is the one that the reply then carries.
	want := preview(ofTokens(30)).Context
	got := exchange(ofTokens(30), "ok")
	for _, name := range []string{"policy", "promptTokens", "maxTokens"} {
		if want[name] != got[name] {
			t.Errorf("%s: %v was foretold, and it was %v", name, want[name], got[name])
		}
	}
	for _, name := range []string{"kept", "dropped"} {
		w, g := want[name].(map[string]any), got[name].(map[string]any)
		if w["count"] != g["count"] || w["first"] != g["first"] {
			t.Errorf("%s: %v was foretold, and it was %v", name, w, g)
		}
	}
}

func TestADryRunIsRefusedWhereASendIs(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	const path = "/v1/sessions/{id}/context"
	refusals{
		"400_no_content":      {"POST", path, `{}`, nil, 400, "validation_error", "content"},
		"400_empty_content":   {"POST", path, content(" "), nil, 400, "validation_error", "content"},
		"400_role":            {"POST", path, content("x", "role", "assistant"), nil, 400, "validation_error", "role"},
		"400_unknown_field":   {"POST", path, content("x", "streaming", true), nil, 400, "validation_error", "streaming"},
		"404_unknown_session": {"POST", "/v1/sessions/" + noSession + "/context", content("x"), nil, 404, "session_not_found", ""},
		"404_foreign_account": {"POST", path, content("x"), []string{"Authorization", "Bearer " + p.key("other", auth.Admin)}, 404, "session_not_found", ""},
	}.run(t, p, session)
	for _, compression := range []bool{true, false} {
		small := p.small(compression)
		checkOverflow(t, p.call("POST", "/v1/sessions/"+small+"/context", content(ofTokens(69))), 69+4+3+25)
		if a := p.call("POST", "/v1/sessions/"+small+"/context", content(ofTokens(68))); a.status != 200 {
			t.Errorf("what just fits: %d %s", a.status, a.raw)
		}
		p.send(small, ofTokens(20)) // and the echo: 24 and 27 or more
		sent := p.call("POST", messages(small), content(ofTokens(60)))
		if a := p.call("POST", "/v1/sessions/"+small+"/context", content(ofTokens(60))); a.status != sent.status {
			t.Errorf("a send is %d, and its dry run %d", sent.status, a.status)
		}
	}
}
