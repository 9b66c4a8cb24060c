package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
	"parley/web/npmtest"
)

// company is a company's own site: it has the key, and serves a page that shows README's component, as it stands there, in
// React. Parley is another origin, behind a wire.
type company struct {
	*httptest.Server
	model *wordsModel
	wire  *wire

	// static once there is a page
	parley *process
	script []byte
}

// newCompany starts all of it. The page is built with the packages that testdata/usechat/package-lock.json names.
func newCompany(t *testing.T) *company {
	t.Helper()
	packages := npmtest.Install(t, "testdata/usechat")
	c := &company{model: newHeldModel(t, held)}
	site := http.NewServeMux()
	site.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>Company</title>`+
			`<div id="root"></div><script type="module" src="/page.js"></script>`)
	})
	site.HandleFunc("GET /page.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(c.script)
	})
	site.HandleFunc("POST /ticket", c.ticket)
	site.HandleFunc("GET /history", c.history)
	c.Server = httptest.NewServer(site)
	t.Cleanup(c.Close)
	c.parley = serveIn(t, t.TempDir(), append(c.model.env(), "PARLEY_TIER=enterprise", "PARLEY_ORIGINS="+c.URL)...)
	c.wire = newWire(t, c.parley)
	c.script = bundle(t, packages, strings.Replace(c.wire.url, "http", "ws", 1)+"/v1/stream")
	return c
}

// bundle returns README's component and its surroundings as one script, with the address of Parley's socket in it.
func bundle(t *testing.T, packages, socket string) []byte {
	t.Helper()
	dir := t.TempDir()
	main, err := os.ReadFile("testdata/usechat/main.jsx")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.jsx": string(main), "chat.jsx": readme(t, "usechat")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	esbuild := exec.CommandContext(t.Context(), filepath.Join(packages, "node_modules/.bin/esbuild"), "main.jsx",
		"--bundle", "--format=esm", "--jsx=automatic", "--jsx-dev", "--log-level=warning", `--define:process.env.PARLEY_URL="`+socket+`"`)
	esbuild.Dir, esbuild.Env = dir, append(os.Environ(), "NODE_PATH="+filepath.Join(packages, "node_modules"))
	var complaints strings.Builder
	esbuild.Stderr = &complaints
	script, err := esbuild.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("esbuild: %v\n%s", err, &complaints)
	}
	return script
}

// ticket gives the page a ticket for the session that it names. A real site would first look whose that is.
func (c *company) ticket(w http.ResponseWriter, r *http.Request) {
	var request struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.NewDecoder(r.Body).Decode(&request) // Parley refuses nonsense
	c.relay(w, func(ticket map[string]any) any { return map[string]any{"ticket": ticket["ticket"]} },
		"POST", "/v1/stream/tickets", request)
}

// history gives the page its session, with what was said as UI messages.
func (c *company) history(w http.ResponseWriter, r *http.Request) {
	session := r.FormValue("session")
	c.relay(w, func(page map[string]any) any {
		messages := []any{}
		for _, m := range page["data"].([]any) {
			m := m.(map[string]any)
			messages = append(messages, map[string]any{
				"id": m["messageId"], "role": m["role"], "parts": []any{map[string]any{"type": "text", "text": m["content"]}},
			})
		}
		slices.Reverse(messages)
		return map[string]any{"sessionId": session, "history": messages}
	}, "GET", "/v1/sessions/"+session+"/messages", nil)
}

// relay asks Parley, and answers with what the page is to have of the answer.
func (c *company) relay(w http.ResponseWriter, of func(answer map[string]any) any, method, path string, body any) {
	status, answer, err := c.parley.call(method, path, body)
	if err != nil || status != http.StatusOK {
		http.Error(w, fmt.Sprint(status, err), http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(of(answer))
}

// chatTab is a tab that shows the company's page.
type chatTab struct {
	*tab
	company *company
	session string
}

// visit opens the page of a session, in a browser of somebody who was never there.
func (c *company) visit(t *testing.T, browser context.Context, session string) chatTab {
	t.Helper()
	b := openTab(t, browser, c.URL, chromedp.WithNewBrowserContext())
	b.elsewhere = c.wire.url
	b.forgiven = regexp.MustCompile(`Download the React DevTools|font-weight:bold|` + cutOff.String())
	b.do(chromedp.Navigate(c.URL + "/?session=" + session))
	return chatTab{b, c, session}
}

// shows waits until the page shows just these messages, from the user's first on in turn, and a status.
func (b chatTab) shows(status string, texts ...string) {
	b.t.Helper()
	want, _ := json.Marshal(append([]string{}, texts...))
	b.until(fmt.Sprintf(`document.querySelector("[role=status]")?.textContent.trim().startsWith(%q) &&
		JSON.stringify([...document.querySelectorAll("p.user, p.assistant")].map((p) => p.textContent)) === %q`, status, want))
}

// press presses a button.
func (b chatTab) press(button string) {
	b.t.Helper()
	b.do(chromedp.Click(`//button[text()="` + button + `"]`))
}

// ask types a message and Enter. The library's SendKeys races with an element whose attributes change.
func (b chatTab) ask(text string) {
	b.t.Helper()
	eval[any](b.tab, `document.querySelector("input").focus()`)
	b.do(chromedp.KeyEvent(text), pressEnter)
}

// kept waits until the server's history holds just these texts, the newest with that status.
func (b chatTab) kept(status string, texts ...string) {
	b.t.Helper()
	late := time.After(timeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var got []string
		last := ""
		for _, m := range b.company.parley.must("GET", "/v1/sessions/"+b.session+"/messages?order=asc", nil)["data"].([]any) {
			m := m.(map[string]any)
			got = append(got, m["content"].(string))
			last, _ = m["status"].(string)
		}
		if last == status && slices.Equal(got, texts) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			b.t.Fatalf("history has %q, the last %s; want %q, %s", got, last, texts, status)
		}
	}
}

// TestTheUseChatOfTheReadmeIsTrue is what somebody sees whose page is README's component, with the AI SDK, React and the network as
// they are.
func TestTheUseChatOfTheReadmeIsTrue(t *testing.T) {
	t.Parallel()
	needs(t, "node", "npm", "chromium")
	c := newCompany(t)
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, c *company, browser context.Context)
	}{
		{"a reply streams, and goes on over a reload and in a second tab", chatStreams},
		{"stop keeps what was written, and the chat goes on", chatStops},
		{"a cut network is back within seconds, and nothing is missing", chatComesBack},
		{"what was sent into a dead network is sent again by Again", chatSendsAgain},
		{"a page that is left leaves its reply going", chatIsLeft},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			c.model.allow(held)
			scenario.play(t, c, browser)
		})
	}
}

const asked = "say 60 words"

func chatStreams(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	c.model.allow(2 * held)
	b.shows("streaming", asked, words(2*held))
	b.do(chromedp.Reload())
	b.shows("streaming", asked, words(2*held))
	second := c.visit(t, browser, b.session)
	second.shows("streaming", asked, words(2*held))
	c.model.allow(long)
	for _, b := range []chatTab{b, second} {
		b.shows("ready", asked, words(long))
	}
	b.kept("completed", asked, words(long))
}

func chatStops(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	b.press("Stop")
	b.shows("ready", asked, words(held))
	b.kept("cancelled", asked, words(held))

	c.model.allow(long)
	b.press("Again")
	b.shows("ready", asked, words(long))
	b.kept("completed", asked, words(held), asked, words(long))
	b.ask("say 2 words")
	b.shows("ready", asked, words(long), "say 2 words", words(2))
	all := []string{asked, words(held), asked, words(long), "say 2 words", words(2)}
	b.kept("completed", all...)

	c.model.allow(held)
	b.ask(asked)
	b.shows("streaming", asked, words(long), "say 2 words", words(2), asked, words(held))
	second := c.visit(t, browser, b.session)
	all = append(all, asked, words(held))
	second.shows("streaming", all...)
	second.press("Stop") // for everybody
	b.shows("ready", asked, words(long), "say 2 words", words(2), asked, words(held))
	b.kept("cancelled", all...)
	b.do(chromedp.Reload())
	b.shows("ready", all...)
}

func chatComesBack(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	c.wire.cut()
	b.shows("error WebSocket chat network connection", asked, words(held))
	c.model.allow(2 * held)
	c.wire.mend(c.parley)
	b.shows("streaming", asked, words(2*held))
	c.model.allow(long)
	b.shows("ready", asked, words(long))
	b.kept("completed", asked, words(long))

	c.model.allow(held)
	b.ask(asked)
	b.shows("streaming", asked, words(long), asked, words(held))
	c.wire.cut()
	b.shows("error", asked, words(long), asked, words(held))
	c.model.allow(long) // it ends while nobody looks
	b.kept("completed", asked, words(long), asked, words(long))
	c.wire.mend(c.parley)
	b.shows("ready", asked, words(long), asked, words(long))
}

func chatSendsAgain(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask("say 2 words")
	b.shows("ready", "say 2 words", words(2))
	c.wire.cut()
	b.ask("say 3 words")
	b.shows("error WebSocket chat network connection", "say 2 words", words(2), "say 3 words")
	c.wire.mend(c.parley)
	b.shows("ready", "say 2 words", words(2), "say 3 words")
	b.kept("completed", "say 2 words", words(2))
	b.press("Again")
	b.shows("ready", "say 2 words", words(2), "say 3 words", words(3))
	b.kept("completed", "say 2 words", words(2), "say 3 words", words(3))
}

func chatIsLeft(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	eval[any](b.tab, `leave()`)
	c.model.allow(2 * held)
	b.kept("streaming", asked, words(2*held))
	c.model.allow(long)
	b.kept("completed", asked, words(long))
	eval[any](b.tab, `show()`) // with the history of before
	b.shows("ready", words(long))
}
