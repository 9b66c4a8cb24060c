package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// small creates a session with a window of 100 tokens: 25 are for the reply and 3 for the prompt itself, so 72 are left for
// messages. Each message takes the tokens of the text and 4 more.
func (p *parley) small(compression bool) string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{
		"userId": user, "contextConfig": map[string]any{"maxTokens": 100, "compressionEnabled": compression},
	})["sessionId"].(string)
}

// ofTokens returns a text of n tokens.
func ofTokens(n int) string { return strings.Repeat("four", n) }

// checkOverflow checks a 413. current is the number of tokens that the window would need.
func checkOverflow(t *testing.T, a answer, current int) {
	t.Helper()
	checkError(t, a, 413, "context_overflow", "", "currentTokens", "maxTokens")
	if e := a.body["error"].(map[string]any); e["currentTokens"] != float64(current) || e["maxTokens"] != 100.0 {
		t.Errorf("got %s, want %d of 100", a.raw, current)
	}
}

// TestSend_OverContextWindow_413 checks the response. Tests in conversation/service and conversation/prompt check which messages
// the prompt keeps and which it drops.
func TestSend_OverContextWindow_413(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	exchange := func(session, text, reply string) *call {
		t.Helper()
		answered := p.later("POST", messages(session), content(text))
		c := model.next(t)
		c.say(reply)
		c.end()
		if a := within(t, "the response", answered); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		return c
	}
	for _, compression := range []bool{true, false} {
		t.Run(fmt.Sprintf("413_one_message_too_long_compression_%v", compression), func(t *testing.T) {
			session := p.small(compression)
			before := p.snapshot(session)
			checkOverflow(t, p.call("POST", messages(session), content(ofTokens(69))), 69+4+3+25)
			checkOverflow(t, p.call("POST", messages(session), content(ofTokens(2500), "streaming", true)), 2500+4+3+25)
			if p.snapshot(session) != before {
				t.Error("the refused send changed the session")
			}
			exchange(session, ofTokens(68), "ok") // exactly fills the window
		})
	}
}
