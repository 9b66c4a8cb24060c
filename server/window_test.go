package server_test

import (
	"fmt"
	"strings"
	"testing"
)

// small makes a session with a window of 100 tokens: 25 are kept for the reply, 3 are the prompt's own, so 72 are for
// messages, each of which takes 4 beside its text.
func (p *parley) small(compression bool) string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{
		"userId": user, "contextConfig": map[string]any{"maxTokens": 100, "compressionEnabled": compression},
	})["sessionId"].(string)
}

// ofTokens is a text of n tokens.
func ofTokens(n int) string { return strings.Repeat("four", n) }

func checkOverflow(t *testing.T, a answer, current int) {
	t.Helper()
	checkError(t, a, 413, "context_overflow", "", "currentTokens", "maxTokens")
	if e := a.body["error"].(map[string]any); e["currentTokens"] != float64(current) || e["maxTokens"] != 100.0 {
		t.Errorf("got %s, want %d of 100", a.raw, current)
	}
}

func TestAContextOverflow(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	exchange := func(session, text, reply string) *call {
		t.Helper()
		answered := p.later("POST", messages(session), content(text))
		c := model.next(t)
		c.say(reply)
		c.end()
		if a := within(t, "the answer", answered); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.raw)
		}
		return c
	}
	for _, compression := range []bool{true, false} {
		t.Run(fmt.Sprintf("413_one_message_over_the_window_compression_%v", compression), func(t *testing.T) {
			session := p.small(compression)
			before := p.snapshot(session)
			checkOverflow(t, p.call("POST", messages(session), content(ofTokens(69))), 69+4+3+25)
			checkOverflow(t, p.call("POST", messages(session), content(ofTokens(2500), "streaming", true)), 2500+4+3+25)
			if p.snapshot(session) != before {
				t.Error("it changed the session")
			}
			exchange(session, ofTokens(68), "ok") // just fits
		})
	}
	t.Run("413_history_full_without_compression_until_cleared", func(t *testing.T) {
		session := p.small(false)
		exchange(session, ofTokens(20), ofTokens(20)) // 48 of 72
		before := p.snapshot(session)
		checkOverflow(t, p.call("POST", messages(session), content(ofTokens(21))), 48+25+3+25)
		if p.snapshot(session) != before {
			t.Error("it changed the session")
		}
		exchange(session, ofTokens(20), "ok") // 72 of 72
		checkOverflow(t, p.call("POST", messages(session), content("x")), 72+5+5+3+25)
		p.must("DELETE", messages(session), nil)
		if c := exchange(session, ofTokens(60), "ok"); len(c.request.Messages) != 1 {
			t.Errorf("after clearing the model was asked %+v", c.request.Messages)
		}
	})
	t.Run("200_the_oldest_are_left_out_with_compression", func(t *testing.T) {
		session := p.small(true)
		exchange(session, "one "+ofTokens(10), "two "+ofTokens(10)) // 15 each
		exchange(session, "3333"+ofTokens(10), "4444"+ofTokens(10))
		c := exchange(session, "5555"+ofTokens(30), "ok") // 35: with 30 of the second exchange 65
		if m := c.request.Messages; len(m) != 3 || m[0].Content[:4] != "3333" || m[1].Content[:4] != "4444" || m[2].Content[:4] != "5555" {
			t.Errorf("the model was asked %+v", m)
		}
		h := p.history(session)
		report := h[5].Context
		kept, dropped := report["kept"].(map[string]any), report["dropped"].(map[string]any)
		if report["promptTokens"] != 68.0 || report["maxTokens"] != 100.0 || report["policy"] != "fifo" || kept["count"] != 3.0 ||
			kept["first"] != h[2].MessageID || kept["last"] != h[4].MessageID || dropped["count"] != 2.0 || dropped["last"] != h[1].MessageID {
			t.Errorf("the report is %v", report)
		}
		if len(h) != 6 {
			t.Errorf("history has %d messages", len(h))
		}
	})
}
