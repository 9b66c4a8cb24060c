package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
)

// TestPageSidebar tests the list of sessions, the context window meter and the usage dialog.
func TestPageSidebar(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, browser context.Context)
	}{
		{"search finds, opens and deletes sessions", sidebarSearch},
		{"list shows changes of other tabs and clients", sidebarUpdates},
		{"long list loads more entries on request", sidebarPaging},
		{"failed list can be retried", sidebarRetry},
		{"window meter and preview match the API", windowMeter},
		{"reply shows its speed if seen from its start", replySpeed},
		{"usage dialog shows the API figures", usageDialog},
		{"key without read:analytics gets an explanation", usageWithoutScope},
		{"meter, preview and usage dialog pass axe-core", sidebarAccessibility},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			scenario.play(t, browser)
		})
	}
}

// press presses and releases a key that enters no text. code is its Windows virtual key code; modifiers is 0, or 2 for Ctrl.
func press(key string, code int64, modifiers int64) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
			event := input.DispatchKeyEventParams{Type: kind, Key: key, WindowsVirtualKeyCode: code, NativeVirtualKeyCode: code, Modifiers: modifiers}
			if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, event); err != nil {
				return chromedp.Void{}, err
			}
		}
		return chromedp.Void{}, nil
	}
}

var (
	pressDown   = press("ArrowDown", 40, 0)
	pressUp     = press("ArrowUp", 38, 0)
	pressRight  = press("ArrowRight", 39, 0)
	pressEscape = press("Escape", 27, 0)
	pressCtrlK  = press("k", 75, 2)
)

// titles is an expression for the titles in the list, in order and separated by commas. focused is an expression for the title of
// the focused list entry. If another element has the focus, the value of focused is the id of that element.
const (
	titles  = `[...document.querySelectorAll("#sessions .title")].map((e) => e.textContent).join()`
	focused = `(document.activeElement.querySelector(".title")?.textContent ?? document.activeElement.id)`
)

// is returns an expression that is true if the given expression equals the string value.
func is(expression, value string) string { return fmt.Sprintf("%s === %q", expression, value) }

// entry returns an expression for the element that selector matches inside the list entry with the title. If no entry has the
// title, its value is undefined.
func entry(title, selector string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#sessions li")].find((e) => e.querySelector(".title").textContent === %q)?.querySelector(%q)`, title, selector)
}

// newTitled creates a session with a title over REST, as another client would, and returns its id.
func newTitled(p *process, title string) string {
	p.t.Helper()
	return p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef", "metadata": map[string]any{"title": title}})["sessionId"].(string)
}

// returnToTab sends the page the event of a tab that becomes visible.
func (b *tab) returnToTab() {
	b.t.Helper()
	eval[bool](b, `document.dispatchEvent(new Event("visibilitychange"))`)
}

// toFront brings a tab to the front.
func toFront(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
	_, err := chromedp.Call(ctx, browserpage.BringToFront, cdp.Empty{})
	return chromedp.Void{}, err
}

// stopTimers stops all timers of the page, including those that poll.
func (b *tab) stopTimers() {
	b.t.Helper()
	eval[bool](b, `(() => { for (let id = setTimeout(() => {}); id > 0; id--) clearTimeout(id); return true; })()`)
}

func sidebarSearch(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	ids := map[string]string{}
	for _, title := range []string{"lighthouse", "fog horn", "fog lamp", "buoy"} {
		ids[title] = newTitled(p, title)
	}
	b := openPage(t, browser, p.url)
	b.until(is(titles, "buoy,fog lamp,fog horn,lighthouse"))
	b.until(is(`document.querySelector("#sessions .count").textContent`, "4 sessions"))
	b.until(is(entry("buoy", ".about")+`.textContent`, "24 h left · 0 messages"))
	b.until(`document.querySelector("#sessions [aria-current]") === null`)

	b.do(pressCtrlK)
	b.until(is(focused, "find"))
	b.do(chromedp.SendKeys("#find", "FOG"))
	b.until(is(titles, "fog lamp,fog horn"))
	b.until(is(`document.querySelector("#sessions .count").textContent`, "2 of 4"))
	b.photograph("list-found")
	for _, step := range []struct {
		press chromedp.Action[chromedp.Void]
		want  string
	}{{pressDown, "fog lamp"}, {pressDown, "fog horn"}, {pressDown, "fog horn"}, {pressUp, "fog lamp"}, {pressUp, "find"}, {pressDown, "fog lamp"}, {pressDown, "fog horn"}} {
		b.do(step.press)
		b.until(is(focused, step.want))
	}
	b.do(pressEnter)
	b.until(is(`document.getElementById("title").textContent`, "fog horn"))
	b.until(is(focused, "text"))
	if shown := b.session(); shown != ids["fog horn"] {
		t.Errorf("session %s is shown, want %s", shown, ids["fog horn"])
	}
	b.until(entry("fog horn", `[aria-current="page"]`) + ` !== null`)
	b.do(pressCtrlK)
	b.until(`getSelection().toString() === "FOG"`)
	b.do(chromedp.SendKeys("#find", "light"), pressEnter)
	b.until(is(`document.getElementById("title").textContent`, "lighthouse"))
	b.do(pressCtrlK, pressEscape)
	b.until(is(focused, "text"))
	b.until(is(titles, "buoy,fog lamp,fog horn,lighthouse"))

	b.do(chromedp.Reload())
	b.until(is(`document.getElementById("title").textContent`, "lighthouse"))
	b.until(entry("lighthouse", `[aria-current="page"]`) + ` !== null`)
	b.photograph("list")
	deleteSessions(b, p, ids)
}

// deleteSessions deletes a session that is not shown, then the session that is shown.
func deleteSessions(b *tab, p *process, ids map[string]string) {
	b.t.Helper()
	b.until(entry("fog lamp", "button") + `.focus() === undefined`)
	b.do(pressEnter)
	b.until(`document.getElementById("confirm-question").textContent.includes("fog lamp")`)
	b.do(chromedp.Click("#confirm-yes"))
	b.until(is(titles, "buoy,fog horn,lighthouse"))
	b.until(is(focused, "fog horn")) // the next entry gets the focus
	if status, _, err := p.call("GET", "/v1/sessions/"+ids["fog lamp"], nil); err != nil || status != 404 {
		b.t.Errorf("GET of the deleted session: %d %v", status, err)
	}
	b.until(is(`document.getElementById("title").textContent`, "lighthouse"))
	b.until(entry("lighthouse", "button") + `.click() === undefined`)
	b.do(chromedp.Click("#confirm-yes"))
	b.until(is(titles, "buoy,fog horn"))
	b.until(is(`document.getElementById("title").textContent`, "New session"))
}

func sidebarUpdates(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.until(`document.querySelector("#sessions .state").textContent.startsWith("No sessions yet")`)
	b.photograph("list-empty")
	b.say("say 60 words")
	b.until(is(entry("say 60 words", ".about")+`?.textContent`, "24 h left · 2 messages"))
	b.untilReply("streaming", words(held))
	b.until(`document.querySelector("#sessions [data-writing]") !== null`)
	b.photograph("list-writing")
	model.allow(long)
	b.untilReply("completed", words(long))
	b.until(`document.querySelector("#sessions [data-writing]") === null`)

	// A change in another tab is shown at once. A change by another client is shown when the user returns to the tab.
	b.do(chromedp.Click("#menu summary"))
	second := b.opened(chromedp.Click("#another-tab"))
	second.until(is(titles, "say 60 words"))
	second.say("say 2 words")
	b.until(is(entry("say 60 words", ".about")+`?.textContent`, "24 h left · 4 messages"))
	second.do(chromedp.Click("#new-session"))
	second.say("say 3 words")
	second.untilReply("completed", words(3))
	b.do(toFront) // a hidden tab does not load the list
	b.until(is(titles, "say 3 words,say 60 words"))
	b.stopTimers() // now the list can change only because of a message from the other tab
	second.until(entry("say 3 words", "button") + `.click() === undefined`)
	second.until(`document.getElementById("confirm-yes").click() === undefined`)
	b.until(is(titles, "say 60 words"))
	b.until(`(window.mark = document.querySelectorAll("#sessions li")[0], mark.firstChild.focus(), true)`)
	foreign := newTitled(p, "foreign")
	b.returnToTab()
	b.until(is(titles, "foreign,say 60 words"))
	b.until(`mark === document.querySelectorAll("#sessions li")[1] && mark.contains(document.activeElement)`)
	p.must("DELETE", "/v1/sessions/"+foreign, nil)
	b.returnToTab()
	b.until(is(titles, "say 60 words"))

	b.do(chromedp.Click("#menu summary"), chromedp.Click("#clear"), chromedp.Click("#confirm-yes"))
	b.until(is(entry("say 60 words", ".about")+`?.textContent`, "24 h left · 0 messages"))
	// Expired sessions disappear without a request: the test sets the page's clock 25 hours ahead and blocks all requests.
	b.until(`(Date.now = () => performance.timeOrigin + performance.now() + 25 * 3600 * 1000, true)`)
	b.until(`(window.fetch = () => new Promise(() => {}), true)`)
	b.returnToTab()
	b.until(is(titles, ""))
}

func sidebarPaging(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	for i := range 45 {
		newTitled(p, fmt.Sprintf("number %d", i))
	}
	b := openPage(t, browser, p.url)
	b.until(`document.querySelectorAll("#sessions li").length === 30`)
	b.until(is(`document.querySelector("#sessions .count").textContent`, "30+ sessions"))
	b.do(chromedp.Click("#sessions .entries > button"))
	b.until(`document.querySelectorAll("#sessions li").length === 45`)
	b.until(is(focused, "number 14")) // the first new entry
	b.until(is(`document.querySelector("#sessions .count").textContent`, "45 sessions"))
	b.until(`document.querySelector("#sessions .entries > button").hidden`)
	newTitled(p, "number 45")
	b.returnToTab()
	b.until(`document.querySelectorAll("#sessions li").length === 46`)
	b.photograph("list-long")
	b.do(chromedp.SendKeys("#find", "number 1"))
	b.until(is(`document.querySelector("#sessions .count").textContent`, "14 of 46"))
	b.fits()
}

func sidebarRetry(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	newTitled(p, "buoy")
	proxy := newProxy(t, p)
	b := openPage(t, browser, proxy.url)
	b.allowedErrors = networkErrors
	b.until(is(titles, "buoy"))
	b.do(chromedp.Click("#forget-key"), chromedp.SendKeys("#key", declaredKey))
	proxy.cut()
	b.do(pressEnter)
	b.until(`document.querySelector("#sessions .state").textContent.startsWith("The session list could not be loaded")`)
	proxy.connect(p)
	b.do(chromedp.Click("#sessions .state button"))
	b.until(is(titles, "buoy"))
	b.until(`document.querySelector("#sessions .state").hidden`)
	// The list is loaded again when the connection is restored.
	b.untilChip("live", "resumed")
	b.stopTimers() // now only the new connection can cause the reload
	proxy.cut()
	b.untilChip("reconnecting", "connecting")
	newTitled(p, "bell")
	proxy.connect(p)
	b.until(is(titles, "bell,buoy"))
}

// meterText is an expression for the text of the context window meter.
const meterText = `document.querySelector("#window summary").textContent`

// smallWindow gives the next session a context window of 512 tokens and a retention policy. A quarter of the window is reply
// room.
func (b *tab) smallWindow(policy string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(document.getElementById("window-tokens").value = "512", document.getElementById("window-policy").value = %q, true)`, policy))
}

func windowMeter(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	b := openPage(t, browser, p.url)
	b.until(`document.getElementById("window").hidden`)
	b.smallWindow("fifo")
	for i := range 5 {
		b.say(fmt.Sprintf("say %d words about the buoy%s", i+1, strings.Repeat(" buoy", 75)))
		b.untilReply("completed", words(i+1))
	}
	b.until(meterText + `.match(/ summarised$/) !== null`)
	newest := p.must("GET", "/v1/sessions/"+b.session()+"/messages?limit=1", nil)["data"].([]any)[0].(map[string]any)
	report := newest["context"].(map[string]any)
	want := fmt.Sprintf("%v of 512 tokens · %v summarised", report["promptTokens"], report["folded"].(map[string]any)["count"])
	b.until(is(meterText, want) + ` || ` + meterText + `.includes("→")`)
	if now := eval[string](b, `document.querySelector("#window .level").ariaValueNow`); now != fmt.Sprint(report["promptTokens"]) {
		t.Errorf("the meter shows %s, want %v", now, report["promptTokens"])
	}
	b.do(chromedp.Click("#window summary"))
	b.until(`document.querySelector("#window dl").textContent.includes("sent as a summary")`)
	b.until(`document.querySelector("#window dl").textContent.includes("tokens in total")`)
	b.until(`document.querySelector("#window button").disabled`)
	b.photograph("meter")
	b.do(pressEscape, chromedp.SendKeys("#text", "What would you say?"), chromedp.Click("#window summary"))
	b.until(`!document.querySelector("#window button").disabled`)
	b.do(chromedp.Click("#window button"))
	b.until(`document.querySelector("#preview[open] li:last-child")?.textContent.includes("What would you say?")`)
	b.photograph("preview")
	if kept := eval[int](b, `document.querySelectorAll('#preview li[data-decision="kept"]').length`); kept == 0 {
		t.Error("the preview lists no kept message")
	}
	b.do(pressEscape, chromedp.Reload())
	b.until(is(meterText, want))
	overflowMeter(b)
}

// overflowMeter checks the meter in a session with the policy refuse, when the next message does not fit into the window.
func overflowMeter(b *tab) {
	b.t.Helper()
	b.do(chromedp.Click("#new-session"))
	b.until(`document.getElementById("window").hidden`)
	b.smallWindow("refuse")
	b.say("say 60 words")
	b.untilReply("completed", words(60))
	b.allowedErrors = regexp.MustCompile(`status of 413`)
	b.until(fmt.Sprintf(`((e) => (e.value = %q, e.dispatchEvent(new Event("input"))))(document.getElementById("text"))`, strings.Repeat("buoy ", 500)))
	b.do(chromedp.Click("#window summary"))
	b.until(`!document.querySelector("#window button").disabled`)
	b.do(chromedp.Click("#window button"))
	b.until(meterText + `.match(/^[\d,]+ needed, 512 fit$/) !== null`)
	previewed := eval[string](b, meterText)
	b.do(chromedp.SendKeys("#text", " "), pressEnter)
	b.until(`document.getElementById("problem").textContent.includes("The context window is full")`)
	b.photograph("overflow")
	if sent := eval[string](b, meterText); sent != previewed {
		b.t.Errorf("the meter shows %q after the preview and %q after the send", previewed, sent)
	}
	b.until(`document.querySelector("#problem p").textContent.includes(` + meterText + `.split(" ")[0])`)
}

func replySpeed(t *testing.T, browser context.Context) {
	model := newWordsModel(t, 20*time.Millisecond)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	const note = reply + `?.querySelector(".note").textContent`
	b.say("say 30 words")
	b.until(fmt.Sprintf(`%s?.match(/^%d tokens · first token in [\d.]+ m?s · [\d,.]+ tokens\/s$/) != null`, note, tokensOf(words(30))))
	timed := eval[string](b, note)
	b.photograph("timed")
	model.allow(held)
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	b.until(`document.getElementById("status").textContent.match(/^Reply streaming, first token in [\d.]+ m?s…$/) !== null`)
	b.do(chromedp.Reload())
	b.untilReply("streaming", words(held))
	model.allow(long)
	b.untilReply("completed", words(long))
	b.until(is(note, fmt.Sprintf("%d tokens", tokensOf(words(long)))))
	t.Log(timed)
}

func usageDialog(t *testing.T, browser context.Context) {
	env := append(newWordsModel(t, time.Millisecond).env(), `PARLEY_TIERS={"pro":{"tokensPerMonth":25}}`)
	p := serveIn(t, t.TempDir(), env...)
	b := openPage(t, browser, p.url)
	b.say("say 5 words")
	b.untilReply("completed", words(5))
	b.say("say 7 words")
	b.untilReply("completed", words(7))
	if eval[bool](b, `performance.getEntriesByType("resource").some(({ name }) => /usage|chart/.test(name))`) {
		t.Error("the usage dialog is loaded before it is opened")
	}
	b.do(chromedp.Click("#open-usage"))
	b.until(`document.querySelectorAll("#usage[open] .limit").length === 3 && document.querySelectorAll("#usage .unit").length === 24`)
	tokens := p.must("GET", "/v1/analytics/usage", nil)["tokens"].(map[string]any)
	b.until(is(`document.querySelector("#usage [aria-label=Tokens]").ariaValueText`, fmt.Sprintf("%v of %v · %v %%, over the limit", tokens["used"], tokens["limit"], tokens["percentage"])))
	b.until(`document.querySelector("#usage [aria-label='Active sessions']").ariaValueNow === "1"`)
	b.until(`document.querySelector("#usage .used").textContent.includes("Tier pro")`)
	b.until(`document.querySelector("#usage figcaption").textContent.startsWith("Messages: 2 user, 2 assistant, 0 system in total")`)
	b.photograph("usage")

	b.until(`(document.querySelector("#usage svg").focus(), true)`)
	b.do(press("End", 35, 0))
	b.until(`document.querySelector("#usage .readout").textContent.endsWith(": 4 messages (user 2, assistant 2, system 0)")`)
	for _, choice := range []struct{ measure, want string }{
		{"tokens", "Tokens: 20 prompt, 12 completion in total"},
		{"replies", "Replies by ending: 2 completed, 0 cancelled, 0 failed, 0 interrupted in total"},
		{"firstToken", "Time to first token: "},
		{"sessions", "Sessions created: 1 created in total"},
	} {
		b.until(fmt.Sprintf(`((e) => (e.value = %q, e.dispatchEvent(new Event("change"))))(document.querySelector("#usage select"))`, choice.measure))
		b.until(fmt.Sprintf(`document.querySelector("#usage figcaption").textContent.startsWith(%q)`, choice.want))
		b.photograph("usage-" + choice.measure)
	}
	b.do(chromedp.Click("#usage [data-period=month]"), pressRight)
	b.until(`document.querySelectorAll("#usage .unit").length === 30 && document.querySelectorAll("#usage tbody tr").length === 30`)
	b.until(`document.querySelector("#usage tfoot td").textContent === "1"`)
	b.until(`document.querySelector("#usage [data-period=month]").ariaPressed === "true"`)
	b.do(pressEscape)
	b.until(`document.querySelector("#usage[open]") === null`)
}

func usageWithoutScope(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	scopes := []string{"read:sessions", "write:sessions", "read:messages", "write:messages"}
	key := p.must("POST", "/v1/keys", map[string]any{"name": "a reader's", "scopes": scopes})["key"].(string)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.allowedErrors = regexp.MustCompile(`status of 403`)
	b.openLink(p.url+"/", key)
	b.untilChip("live")
	b.do(chromedp.Click("#open-usage"))
	b.until(`document.querySelector("#usage[open] .problem")?.textContent.includes("lacks the scope read:analytics")`)
	b.until(`document.querySelector("#usage .charted").hidden`)
	b.photograph("usage-lacking")
}

// sidebarAccessibility runs axe-core on the window meter, the preview and the usage dialog.
func sidebarAccessibility(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	newTitled(p, "buoy")
	b := openPage(t, browser, p.url)
	b.say("say 5 words")
	b.untilReply("completed", words(5))
	for _, screen := range []struct {
		scheme        string
		width, height int64
	}{{"light", 1000, 700}, {"dark", 1000, 700}, {"light", 390, 844}} {
		b.look(screen.scheme, screen.width, screen.height)
		b.do(chromedp.Click("#window summary"))
		b.until(`document.querySelector("#window dl").textContent.includes("tokens in total")`)
		b.axe()
		b.do(pressEscape)
		b.until(`(document.getElementById("text").value = "And now?", true)`)
		b.do(chromedp.Click("#window summary"))
		b.until(`!document.querySelector("#window button").disabled`)
		b.do(chromedp.Click("#window button"))
		b.until(`document.querySelector("#preview[open]") !== null`)
		b.axe()
		b.do(pressEscape, pressCtrlK)
		b.until(is(focused, "find"))
		b.do(chromedp.Click("#open-usage"))
		b.until(`document.querySelectorAll("#usage[open] .limit").length === 3 && document.querySelectorAll("#usage .unit").length === 24`)
		b.until(`(document.querySelector("#usage details").open = true)`)
		b.axe()
		b.do(pressEscape, pressCtrlK, pressEscape)
	}
}
