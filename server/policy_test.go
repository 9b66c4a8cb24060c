package server_test

import (
	"slices"
	"strings"
	"testing"
)

// windowed creates a session with a context window of maxTokens and a retention policy.
func (p *parley) windowed(maxTokens int, policy string) string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{
		"userId": user, "contextConfig": map[string]any{"maxTokens": maxTokens, "retentionPolicy": policy},
	})["sessionId"].(string)
}

// exchange sends text and makes the model reply with reply. It returns the model's call and the stored reply. The parameter more
// is the same as for content.
func (p *parley) exchange(model *directed, session, reply, text string, more ...any) (*call, message) {
	p.t.Helper()
	answered := p.later("POST", messages(session), content(text, more...))
	c := model.next(p.t)
	c.say(reply)
	c.end()
	a := within(p.t, "the response", answered)
	if a.status != 200 {
		p.t.Fatalf("%d %s", a.status, a.raw)
	}
	return c, decodeInto[message](p.t, a)
}

// firstWords returns the first word of each message in a call's prompt.
func firstWords(c *call) string {
	var all []string
	for _, m := range c.request.Messages {
		all = append(all, strings.Fields(m.Content)[0])
	}
	return strings.Join(all, " ")
}

// TestRetentionPolicy_ChoosesMessagesOfPrompt has the same conversation under each policy. In the window of 300 tokens, messages
// may take 222, and each exchange takes 60. The window is too small for a summary. Each policy keeps the system message.
func TestRetentionPolicy_ChoosesMessagesOfPrompt(t *testing.T) {
	conversation := []struct {
		words, role, priority string
	}{
		{"rules here: nobody reads them anyway", "system", ""},
		{"lighthouse keepers warn the ships at night", "user", ""},
		{"passwords are kept in the red drawer", "user", "high"},
		{"weather is nice today so they say", "user", "low"},
		{"dinner is at eight in the evening", "user", ""},
		{"music is played by a small orchestra", "user", ""},
	}
	for policy, want := range map[string]string{
		"fifo":     "rules dinner to-dinner music to-music who", // the reply to an old system message is not read
		"priority": "rules to-rules passwords to-passwords music to-music who",
		"semantic": "rules to-rules lighthouse to-lighthouse music to-music who", // the similar exchange and the newest
	} {
		t.Run(policy, func(t *testing.T) {
			model := newDirected()
			p := start(t, model)
			session := p.windowed(300, policy)
			for _, m := range conversation {
				text := m.words + strings.Repeat(" ", 80-len(m.words)) // 20 tokens
				var more []any
				more = append(more, "role", m.role)
				if m.priority != "" {
					more = append(more, "metadata", map[string]any{"priority": m.priority})
				}
				first, _, _ := strings.Cut(m.words, " ")
				reply := "to-" + first
				p.exchange(model, session, reply+strings.Repeat(" ", 128-len(reply)), text, more...)
			}
			const question = "who can warn ships if no lighthouses remain on that coast?"
			dry := decodeInto[previewed](t, p.call("POST", "/v1/sessions/"+session+"/context", content(question)))
			c, reply := p.exchange(model, session, "nobody", question)
			if got := firstWords(c); got != want {
				t.Errorf("the model got %q, want %q", got, want)
			}
			n := strings.Count(want, " ") + 1
			kept, dropped := reply.Context["kept"].(map[string]any), reply.Context["dropped"].(map[string]any)
			if kept["count"] != float64(n) || dropped["count"] != float64(13-n) || reply.Context["policy"] != policy || reply.Context["summarised"] != false {
				t.Errorf("the report is %v", reply.Context)
			}
			for _, name := range []string{"kept", "folded", "dropped", "skipped"} {
				w, g := dry.Context[name].(map[string]any), reply.Context[name].(map[string]any)
				if w["count"] != g["count"] || w["first"] != g["first"] {
					t.Errorf("%s: the dry run has %v, the reply %v", name, w, g)
				}
			}
			h := p.history(session)
			if got := dry.kept(t, h[:len(h)-2]); got != strings.TrimSuffix(want, " who") {
				t.Errorf("the dry run keeps %v", got)
			}
		})
	}
}

// kept returns the first word of each message that the dry run keeps. history holds the messages of the session, oldest first. The
// dry run must list the newest messages without a gap. Before them, it may list single system messages.
func (p *previewed) kept(t *testing.T, history []message) string {
	t.Helper()
	var kept []string
	gap := true // messages may be missing before the next listed message
	for i, m := range p.Messages[:len(p.Messages)-1] {
		at := slices.IndexFunc(history, func(stored message) bool { return stored.MessageID == m.MessageID })
		if at < 0 || at > 0 && !gap || m.Reason == "" {
			t.Fatalf("message %d of the dry run is %+v", i, m)
		}
		if m.Decision == "kept" {
			kept = append(kept, strings.Fields(history[at].Content)[0])
		}
		gap, history = m.Role == "system", history[at+1:]
	}
	if len(history) > 0 {
		t.Errorf("the dry run does not list %+v", history)
	}
	return strings.Join(kept, " ")
}
