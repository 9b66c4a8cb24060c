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

// company is the site of a company that uses Parley. Its server has the API key; its page uses the component of the AI SDK guide.
// The page reaches Parley, another origin, through a proxy that the test can cut.
type company struct {
	*httptest.Server
	model *wordsModel
	proxy *proxy

	// set before the first page is served, then constant
	parley *process
	script []byte
}

// newCompany starts the site, Parley and a model. It builds the page with the packages of testdata/usechat/package-lock.json.
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
	c.proxy = newProxy(t, c.parley)
	c.script = bundle(t, packages, strings.Replace(c.proxy.url, "http", "ws", 1)+"/v1/stream")
	return c
}

// bundle returns one script that contains main.jsx and the component of the guide. socket is the URL of Parley's WebSocket.
func bundle(t *testing.T, packages, socket string) []byte {
	t.Helper()
	dir := t.TempDir()
	main, err := os.ReadFile("testdata/usechat/main.jsx")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.jsx": string(main), "chat.jsx": sample(t, aiSDKGuide, "usechat")} {
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

// ticket returns a ticket for the session in the request. A real site would first check that the user may read that session.
func (c *company) ticket(w http.ResponseWriter, r *http.Request) {
	var request struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.NewDecoder(r.Body).Decode(&request) // Parley refuses an invalid request
	c.relay(w, func(ticket map[string]any) any { return map[string]any{"ticket": ticket["ticket"]} },
		"POST", "/v1/stream/tickets", request)
}

// history returns the session and its messages in the form of the AI SDK.
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

// relay calls Parley, converts the response, and sends the result to the page.
func (c *company) relay(w http.ResponseWriter, convert func(response map[string]any) any, method, path string, body any) {
	status, response, err := c.parley.call(method, path, body)
	if err != nil || status != http.StatusOK {
		http.Error(w, fmt.Sprint(status, err), http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(convert(response))
}

// chatTab is a tab that shows the company's page with one session.
type chatTab struct {
	*tab
	company *company
	session string
}

// visit opens the page of a session in a new browser profile.
func (c *company) visit(t *testing.T, browser context.Context, session string) chatTab {
	t.Helper()
	b := openTab(t, browser, c.URL, chromedp.WithNewBrowserContext())
	b.elsewhere = c.proxy.url
	b.allowedErrors = regexp.MustCompile(`Download the React DevTools|font-weight:bold|` + networkErrors.String())
	b.do(chromedp.Navigate(c.URL + "/?session=" + session))
	return chatTab{b, c, session}
}

// shows waits until the page shows the status, and exactly these texts as the messages of the user and the assistant,
// alternately.
func (b chatTab) shows(status string, texts ...string) {
	b.t.Helper()
	want, _ := json.Marshal(append([]string{}, texts...))
	b.until(fmt.Sprintf(`document.querySelector("[role=status]")?.textContent.trim().startsWith(%q) &&
		JSON.stringify([...document.querySelectorAll("p.user, p.assistant")].map((p) => p.textContent)) === %q`, status, want))
}

// press clicks the button with the text button.
func (b chatTab) press(button string) {
	b.t.Helper()
	b.do(chromedp.Click(`//button[text()="` + button + `"]`))
}

// ask types a message and presses Enter. It does not use SendKeys, which fails if React changes the element meanwhile.
func (b chatTab) ask(text string) {
	b.t.Helper()
	eval[any](b.tab, `document.querySelector("input").focus()`)
	b.do(chromedp.KeyEvent(text), pressEnter)
}

// untilHistory waits until the history has exactly these texts, and the newest message has the status.
func (b chatTab) untilHistory(status string, texts ...string) {
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

// TestSamples_UseChat uses the component of the AI SDK guide in a browser, with the real AI SDK and React, and cuts the network.
func TestSamples_UseChat(t *testing.T) {
	t.Parallel()
	needs(t, "node", "npm")
	c := newCompany(t)
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, c *company, browser context.Context)
	}{
		{"reload and second tab continue the reply", chatReload},
		{"stop cancels the reply, Again sends the message again", chatStop},
		{"restored network resumes the reply", chatReconnect},
		{"Again repeats a send that was lost", chatLostSend},
		{"leaving the page does not stop the reply", chatLeave},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			c.model.allow(held)
			scenario.play(t, c, browser)
		})
	}
}

const asked = "say 60 words"

func chatReload(t *testing.T, c *company, browser context.Context) {
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
	b.untilHistory("completed", asked, words(long))
}

func chatStop(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	b.press("Stop")
	b.shows("ready", asked, words(held))
	b.untilHistory("cancelled", asked, words(held))

	c.model.allow(long)
	b.press("Again")
	b.shows("ready", asked, words(long))
	b.untilHistory("completed", asked, words(held), asked, words(long))
	b.ask("say 2 words")
	b.shows("ready", asked, words(long), "say 2 words", words(2))
	all := []string{asked, words(held), asked, words(long), "say 2 words", words(2)}
	b.untilHistory("completed", all...)

	c.model.allow(held)
	b.ask(asked)
	b.shows("streaming", asked, words(long), "say 2 words", words(2), asked, words(held))
	second := c.visit(t, browser, b.session)
	all = append(all, asked, words(held))
	second.shows("streaming", all...)
	second.press("Stop") // cancels the reply for all viewers
	b.shows("ready", asked, words(long), "say 2 words", words(2), asked, words(held))
	b.untilHistory("cancelled", all...)
	b.do(chromedp.Reload())
	b.shows("ready", all...)
}

func chatReconnect(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	c.proxy.cut()
	b.shows("error WebSocket chat network connection", asked, words(held))
	c.model.allow(2 * held)
	c.proxy.connect(c.parley)
	b.shows("streaming", asked, words(2*held))
	c.model.allow(long)
	b.shows("ready", asked, words(long))
	b.untilHistory("completed", asked, words(long))

	c.model.allow(held)
	b.ask(asked)
	b.shows("streaming", asked, words(long), asked, words(held))
	c.proxy.cut()
	b.shows("error", asked, words(long), asked, words(held))
	c.model.allow(long) // the reply ends while the network is cut
	b.untilHistory("completed", asked, words(long), asked, words(long))
	c.proxy.connect(c.parley)
	b.shows("ready", asked, words(long), asked, words(long))
}

func chatLostSend(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask("say 2 words")
	b.shows("ready", "say 2 words", words(2))
	c.proxy.cut()
	b.ask("say 3 words")
	b.shows("error WebSocket chat network connection", "say 2 words", words(2), "say 3 words")
	c.proxy.connect(c.parley)
	b.shows("ready", "say 2 words", words(2), "say 3 words")
	b.untilHistory("completed", "say 2 words", words(2))
	b.press("Again")
	b.shows("ready", "say 2 words", words(2), "say 3 words", words(3))
	b.untilHistory("completed", "say 2 words", words(2), "say 3 words", words(3))
}

func chatLeave(t *testing.T, c *company, browser context.Context) {
	b := c.visit(t, browser, c.parley.session())
	b.shows("ready")
	b.ask(asked)
	b.shows("streaming", asked, words(held))
	eval[any](b.tab, `leave()`)
	c.model.allow(2 * held)
	b.untilHistory("streaming", asked, words(2*held))
	c.model.allow(long)
	b.untilHistory("completed", asked, words(long))
	eval[any](b.tab, `show()`) // shows the chat again, with the history of the first load, which was empty
	b.shows("ready", words(long))
}
