package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"parley/stream/openai"
	"parley/web/browsertest"
)

// TestPageTools tests the inspector and the failure simulator.
func TestPageTools(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, browser context.Context)
	}{
		{"dropped socket resumes without a gap", toolsDroppedSocket},
		{"simulated offline resumes with one new socket", toolsOffline},
		{"slow reader gets fewer, larger deltas", toolsSlowReader},
		{"cancel from another device keeps the partial reply", toolsCancel},
		{"failed reply keeps its text", toolsModelFailure},
		{"inspector shows requests and frames, no secret", inspectorRedaction},
		{"inspector and simulator pass axe-core", toolsAccessibility},
		{"inspector keeps 500 rows, filters and pauses", inspectorLimit},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			scenario.play(t, browser)
		})
	}
}

// simulate clicks an item in the menu of the failure simulator.
func (b *tab) simulate(item string) {
	b.t.Helper()
	b.do(chromedp.Click("#simulator summary"))
	b.until(fmt.Sprintf(`document.querySelector("#simulate-%s")?.checkVisibility() && !document.querySelector("#simulate-%[1]s").disabled`, item))
	b.do(chromedp.Click("#simulate-" + item))
	b.until(`!document.getElementById("simulator").open`)
}

// inspect opens the inspector.
func (b *tab) inspect() {
	b.t.Helper()
	b.do(chromedp.Click("#inspect"))
	b.until(`document.getElementById("inspect").getAttribute("aria-expanded") === "true" && document.querySelectorAll(".frame").length > 0`)
}

// requested returns the URL of the page's first request that contains a slash and then one of the names. If no URL does, it
// returns "".
func (b *tab) requested(names ...string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range b.requests {
		for _, name := range names {
			if strings.Contains(address, "/"+name) {
				return address
			}
		}
	}
	return ""
}

// sockets returns how many WebSockets the tab has opened.
func (b *tab) sockets() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range b.requests {
		if strings.HasPrefix(address, "ws") {
			n++
		}
	}
	return n
}

func toolsDroppedSocket(t *testing.T, browser context.Context) {
	const token = 37
	model := newHeldModel(t, token)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say("say 60 words")
	b.untilReply("streaming", words(token))
	before := b.sockets()
	eval[bool](b, `((chip) => new MutationObserver(() => { if (chip.dataset.state === "resumed") window.resumed = true; }).observe(chip, { attributes: true }) ?? true)(document.getElementById("chip"))`)
	b.simulate("drop")
	b.until(`window.resumed === true`) // the chip shows this state for only four seconds
	if b.sockets() == before {
		t.Error("no new socket was opened")
	}
	b.untilReply("streaming", words(token))
	model.allow(long - 1) // checked before the terminal frame, which would hide a gap
	b.untilReply("streaming", words(long-1))
	model.allow(long)
	if text := checkReply(b, p, "completed"); text != words(long) {
		t.Errorf("the reply is %q", text)
	}
}

func toolsOffline(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	before := b.sockets()
	// The page goes online again after a timer of five seconds. The test replaces this timer and calls its function itself.
	eval[bool](b, `((real) => window.setTimeout = (run, ms, ...more) => ms === 5000 && !window.goOnline ? (window.goOnline = run, 0) : real(run, ms, ...more))(setTimeout) !== null`)
	b.simulate("offline")
	b.untilChip("reconnecting")
	b.until(`/^reconnecting in \d+ s$/.test(document.getElementById("chip").textContent)`)
	b.photograph("offline")
	model.allow(2 * held)
	if n := b.sockets() - before; n != 0 {
		t.Errorf("%d sockets were opened while offline", n)
	}
	eval[bool](b, `goOnline() === undefined`)
	b.untilChip("live", "resumed")
	if n := b.sockets() - before; n != 1 {
		t.Errorf("%d sockets were opened after the network came back, want 1", n)
	}
	b.untilReply("streaming", words(2*held))
	model.allow(long)
	if text := checkReply(b, p, "completed"); text != words(long) {
		t.Errorf("the reply is %q", text)
	}
}

func toolsSlowReader(t *testing.T, browser context.Context) {
	const n = 300
	model := newWordsModel(t, 20*time.Millisecond)
	model.allow(n - 10)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.simulate("slow")
	b.until(`document.querySelector("#simulator[data-on]") && document.querySelector("#simulate-slow").getAttribute("aria-pressed") === "true"`)
	b.inspect()
	b.say(fmt.Sprintf("say %d words", n))
	b.untilReply("streaming", words(n-10)) // checked before the terminal frame, which would hide a gap
	b.photograph("slowly")
	model.allow(n)
	if text := checkReply(b, p, "completed"); text != words(n) {
		t.Errorf("the reply has %d bytes, not %d", len(text), len(words(n)))
	}
	const deltas = `[...document.querySelectorAll(".frame")].filter((row) => row.querySelector(".name").textContent === "message.delta")`
	b.until(deltas + `.length > 1`)
	shown := eval[int](b, deltas+`.filter((row) => !("dropped" in row.dataset)).length`)
	dropped := eval[int](b, deltas+`.filter((row) => "dropped" in row.dataset).length`)
	t.Logf("%d words: %d deltas shown, %d dropped", n, shown, dropped)
	if shown < 2 || dropped < shown {
		t.Errorf("of %d words, %d deltas were shown and %d dropped; want at least 2 shown and half dropped", n, shown, dropped)
	}
	b.simulate("slow")
	b.until(`!document.querySelector("#simulator[data-on]")`)
	b.say("say 2 words")
	b.untilReply("completed", words(2))
}

func toolsCancel(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	if shown := eval[int](b, `[...document.querySelectorAll(".simulated")].filter((label) => label.checkVisibility()).length`); shown > 0 {
		t.Error("the page labels a real model as simulated")
	}
	b.do(chromedp.Click("#simulator summary"))
	b.until(`document.querySelector("#simulate-cancel")?.disabled`)
	if offered := eval[bool](b, `document.querySelector("#simulate-fail") !== null`); offered {
		t.Error("the failure simulator offers model failures for a real model")
	}
	b.do(chromedp.Click("#simulator summary"))
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	b.simulate("cancel")
	if text := checkReply(b, p, "cancelled"); text != words(held) {
		t.Errorf("the reply is %q", text)
	}
	b.until(`document.querySelector("#simulate-cancel").disabled`)
}

// openSimulated starts a server with the simulated model and opens its page. It skips the test if a local model server runs.
func openSimulated(t *testing.T, browser context.Context) (*tab, *process) {
	t.Helper()
	if _, _, ok := openai.Detect(t.Context()); ok {
		t.Skip("a local model server runs on this machine, so the simulated model is not used")
	}
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey)
	return openPage(t, browser, p.url), p
}

func toolsModelFailure(t *testing.T, browser context.Context) {
	b, p := openSimulated(t, browser)
	visible := `[...document.querySelectorAll(".simulated")].filter((label) => label.checkVisibility()).length === 1`
	b.until(visible)
	b.do(chromedp.EmulateViewport(390, 700))
	b.until(`innerWidth === 390 && ` + visible)
	b.do(chromedp.EmulateViewport(1000, 700))
	b.photograph("simulated-empty")
	b.do(chromedp.Click("#simulator summary"))
	b.until(`document.querySelector("#simulate-fail")?.checkVisibility()`)
	b.photograph("simulator")
	b.do(chromedp.Click("#simulator summary"))
	b.simulate("fail")
	if text := checkReply(b, p, "failed"); !strings.Contains(text, "You asked for a failure") {
		t.Errorf("the text before the failure is not kept: %q", text)
	}
	b.until(reply + `.querySelector(".note").textContent.startsWith("The simulated model failed")`)
	b.say("/words 5")
	b.until(reply + `.dataset.status === "completed"`)
	b.simulate("stall")
	b.until(reply + `.dataset.status === "streaming" && ` + reply + `.querySelector(".text").textContent.includes("I say nothing")`)
	b.simulate("cancel")
	checkReply(b, p, "cancelled")
}

// recordTickets is a script that collects the subprotocols of the page's sockets in window.protocols. The subprotocols contain
// the tickets.
const recordTickets = `window.protocols = [];
	window.WebSocket = class extends WebSocket { constructor(url, protocols) { super(url, protocols); window.protocols.push(...protocols); } };`

func inspectorRedaction(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.allowedErrors = regexp.MustCompile(`^$`)
	b.initScript(recordTickets)
	b.openLink(p.url+"/", declaredKey)
	b.untilChip("live")
	b.say("my key is " + declaredKey + ", say nothing")
	b.untilReply("completed", words(3))
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	if early := b.requested("inspector", "snippets", "simulator"); early != "" {
		t.Errorf("the page loads %s before it is needed", early)
	}
	b.inspect()
	b.until(`Boolean(` + row("send") + ` && ` + row("message.created") + ` && ` + row("POST /stream/tickets") + `)`)
	b.photograph("inspector")
	eval[bool](b, row("send")+`.querySelector("summary").click() ?? true`)
	b.until(row("send") + `.querySelector("[role=tab]") !== null`)
	b.photograph("inspector-call")
	b.copySnippets(t)
	// Every row is opened. No secret may be shown.
	eval[bool](b, `document.querySelectorAll(".frame").forEach((row) => row.open = true) ?? true`)
	b.until(`[...document.querySelectorAll(".frame")].every((row) => row.querySelector(".inside") !== null)`)
	tickets := eval[[]string](b, `protocols.filter((name) => name.startsWith("ticket."))`)
	seen := eval[string](b, `document.getElementById("inspector").outerHTML`)
	for _, secret := range append(tickets, declaredKey) {
		if secret = strings.TrimPrefix(secret, "ticket."); strings.Contains(seen, secret) {
			t.Errorf("the inspector shows a secret: %s", secret)
		}
	}
	if len(tickets) == 0 || !strings.Contains(seen, `"ticket": "…"`) {
		t.Errorf("%d tickets were used; the inspector shows %d bytes and no redacted ticket", len(tickets), len(seen))
	}
	b.do(chromedp.Focus("#inspector .frame summary"), chromedp.KeyEvent(kb.ArrowDown))
	b.until(`document.activeElement === document.querySelectorAll(".frame summary")[1]`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`document.getElementById("inspector").hidden && document.activeElement.id === "inspect"`)
	if status, _ := newestReply(p, b.session()); status != "streaming" {
		t.Errorf("Esc in the inspector changed the reply to %s", status)
	}
	model.allow(long)
	checkReply(b, p, "completed")
	// A new key may belong to another person, so the inspector must show nothing that was recorded with the previous key.
	b.inspect()
	b.do(chromedp.Click("#forget-key"), chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilChip("live")
	b.until(`document.getElementById("inspector").hidden && document.querySelectorAll(".frame").length === 0`)
	b.inspect()
	if still := eval[bool](b, row("send")+` !== undefined`); still {
		t.Error("the inspector shows a message that was sent with the previous key")
	}
}

// row returns an expression for the inspector's newest row with the given name.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".frame")].findLast((row) => row.querySelector(".name").textContent === %q)`, name)
}

// copySnippets copies each snippet of the newest "send" row and pastes it into the composer. The pasted text must equal the
// snippet.
func (b *tab) copySnippets(t *testing.T) {
	t.Helper()
	for _, language := range []struct{ name, begins string }{{"curl", "curl -sS "}, {"JavaScript", "// curl -O "}, {"Go", "package main\n"}} {
		tab := fmt.Sprintf(`[...%s.querySelectorAll("[role=tab]")].find((tab) => tab.textContent === %q)`, row("send"), language.name)
		eval[bool](b, tab+`.click() ?? true`)
		shown := eval[string](b, row("send")+`.querySelector("[role=tabpanel]").textContent`)
		eval[bool](b, row("send")+`.querySelector(".same .copy").setAttribute("data-try", "") ?? true`)
		eval[bool](b, `(document.querySelector("[data-try]").textContent = "Copy") !== ""`) // the label stays "Copied" for 1.5 s
		eval[bool](b, `((button) => new MutationObserver((_, observer) => button.textContent === "Copied" && (observer.disconnect(), button.setAttribute("data-copied", ""))).observe(button, { childList: true }) ?? true)(document.querySelector("[data-try]"))`)
		b.do(chromedp.ScrollIntoView("[data-try]"), chromedp.Click("[data-try]"))
		b.until(`document.querySelector("[data-try]").matches("[data-copied]")`)
		eval[bool](b, `document.querySelector("[data-try]").removeAttribute("data-copied") ?? true`)
		b.do(chromedp.Focus("#text"), paste)
		b.until(`document.getElementById("text").value !== ""`)
		if pasted := eval[string](b, `document.getElementById("text").value`); pasted != shown || !strings.HasPrefix(pasted, language.begins) {
			t.Errorf("%s: pasted %q, want %q", language.name, pasted, shown)
		}
		eval[bool](b, `(document.getElementById("text").value = "") === ""`)
	}
}

// paste triggers the browser's paste command, like Ctrl+V.
func paste(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
	_, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: "v", Code: "KeyV", Commands: []string{"paste"},
	})
	return chromedp.Void{}, err
}

// toolsAccessibility runs axe-core on the inspector and the failure simulator. In the inspector it also checks that nothing is
// wider than the screen and that controls are at least 24 pixels high.
func toolsAccessibility(t *testing.T, browser context.Context) {
	b, _ := openSimulated(t, browser)
	b.simulate("slow")
	b.say("Hello")
	b.until(reply + `?.dataset.status === "completed"`)
	b.inspect()
	b.until(`Boolean(document.querySelector(".frame[data-dropped]") && ` + row("send") + `)`)
	eval[bool](b, row("send")+`.querySelector("summary").click() ?? true`)
	b.until(row("send") + `.querySelector("[role=tab]") !== null`)
	for _, screen := range []struct {
		scheme string
		width  int64
	}{{"light", 1000}, {"dark", 1000}, {"light", 390}, {"dark", 390}} {
		b.look(screen.scheme, screen.width, 700)
		b.axe()
		if wide := eval[string](b, `[...document.querySelectorAll("#inspector *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
			.slice(0, 5).map((e) => e.tagName + " " + e.className).join(", ")`); wide != "" {
			t.Errorf("too wide for a screen of %d pixels: %s", screen.width, wide)
		}
		if small := eval[string](b, `[...document.querySelectorAll("#inspector :is(button, summary, select)")]
			.filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24).slice(0, 5).map((e) => e.outerHTML).join(", ")`); small != "" {
			t.Errorf("controls less than 24 pixels high: %s", small)
		}
	}
	b.do(chromedp.Focus("#inspector .frame summary"), chromedp.KeyEvent(kb.Escape))
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme, 390, 700)
		b.do(chromedp.Click("#simulator summary"))
		b.until(`document.querySelector("#simulate-slow").checkVisibility()`)
		b.axe()
		b.do(chromedp.Click("#simulator summary"))
	}
}

func inspectorLimit(t *testing.T, browser context.Context) {
	const rows = 500
	p := serveIn(t, t.TempDir(), newWordsModel(t, 5*time.Millisecond).env()...)
	b := openPage(t, browser, p.url)
	b.inspect()
	counted := func() (n int) { // number of frames; on a slow machine a frame has many words
		_, _ = fmt.Sscan(strings.ReplaceAll(eval[string](b, `document.querySelector(".counts").textContent`), ",", ""), &n)
		return n
	}
	for n := 1; counted() < 2*rows; n++ {
		b.say("say 1500 words")
		b.until(fmt.Sprintf(`document.querySelectorAll("article[data-role=assistant][data-status=completed]").length === %d`, n))
		b.until(`Boolean(` + row("message.completed") + `)`)
	}
	if away := eval[float64](b, `(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(document.querySelector(".frames"))`); away > 100 {
		t.Errorf("the list is %v pixels away from the newest row", away)
	}
	if shown := eval[int](b, `document.querySelectorAll(".frame").length`); shown != rows {
		t.Errorf("%d rows are shown, want %d", shown, rows)
	}
	b.until(`/^[\d,]+ frames · \d+ kB · \d+ deltas\/s$/.test(document.querySelector(".counts").textContent)`)

	choose := func(filter string) {
		eval[bool](b, fmt.Sprintf(`((select) => (select.value = %q, select.dispatchEvent(new Event("change"))))(document.querySelector("#inspector select"))`, filter))
	}
	choose("quiet")
	b.until(`Boolean(` + row("message.completed") + ` && !` + row("message.delta") + `)`)
	choose("all")
	b.do(chromedp.Click(`#inspector [aria-pressed]`)) // pause
	b.say("say 2 words")
	b.untilReply("completed", words(2))
	b.until(`/ paused, [1-9]\d* new$/.test(document.querySelector(".counts").textContent)`)
	const says = `[...document.querySelectorAll(".frame")].some((row) => row.textContent.includes("say 2 words"))`
	if eval[bool](b, says) {
		t.Error("the paused inspector shows new frames")
	}
	b.do(chromedp.Click(`#inspector [aria-pressed]`))
	b.until(says)
	b.do(chromedp.Click(`#inspector .controls button:last-child`))
	b.until(`document.querySelectorAll(".frame").length === 0`)
	b.say("say 3 words")
	b.until(`Boolean(` + row("message.completed") + `)`)
}
