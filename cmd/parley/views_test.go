package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// networkConditions are the parameters of Network.emulateNetworkConditionsByRule. Chromium 148, the version in Debian, requires
// Offline here. Later versions read Offline from each condition.
type networkConditions struct {
	Offline    bool                  `json:"offline"`
	Conditions []*network.Conditions `json:"matchedNetworkConditions"`
}

// offline takes the tab offline, or online again. Other tabs keep their network.
func (b *tab) offline(offline bool) {
	b.t.Helper()
	b.do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		emulate := cdp.Command[networkConditions, network.EmulateNetworkConditionsByRuleResult]{Method: network.CommandEmulateNetworkConditionsByRule}
		_, err := chromedp.Call(ctx, emulate, networkConditions{
			Offline: offline, Conditions: []*network.Conditions{{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1}},
		})
		if err == nil {
			_, err = chromedp.Call(ctx, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: offline, DownloadThroughput: -1, UploadThroughput: -1})
		}
		return chromedp.Void{}, err
	})
	b.until(fmt.Sprintf(`navigator.onLine === %v`, !offline))
}

func viewOffline(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.allowedErrors = regexp.MustCompile(networkErrors.String() + `|ERR_INTERNET_DISCONNECTED`)
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	b.offline(true)
	b.untilChip("reconnecting", "connecting")
	model.allow(2 * held)
	// Text that the user types while offline is kept.
	b.do(chromedp.SendKeys("#text", "say 2 words"))
	b.offline(false)
	start := time.Now()
	b.untilChip("live", "resumed")
	t.Logf("back after %v", time.Since(start))
	b.untilReply("streaming", words(2*held))
	model.allow(long - 1) // checked before the terminal frame, which would hide a gap
	b.untilReply("streaming", words(long-1))
	model.allow(long)
	if text := checkReply(b, p, "completed"); text != words(long) {
		t.Errorf("the reply is %q", text)
	}
	b.do(chromedp.Focus("#text"), pressEnter)
	b.untilReply("completed", words(2))
}

// openWithNewKey creates a key and opens the page with it. A zero expiresAt means that the key does not expire.
func openWithNewKey(t *testing.T, browser context.Context, p *process, expiresAt time.Time) (b *tab, keyID string) {
	t.Helper()
	record := map[string]any{"name": "a guest's", "scopes": []string{"read:sessions", "write:sessions", "read:messages", "write:messages"}}
	if !expiresAt.IsZero() {
		record["expiresAt"] = expiresAt.UTC().Format(time.RFC3339Nano)
	}
	made := p.must("POST", "/v1/keys", record)
	b = openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.allowedErrors = regexp.MustCompile(`status of 401`)
	b.openLink(p.url+"/", made["key"].(string))
	b.untilChip("live")
	return b, made["keyId"].(string)
}

// untilGate waits until the page asks for a key and states the reason. It checks that the page hides the conversation and has
// deleted the refused key.
func (b *tab) untilGate() {
	b.t.Helper()
	b.until(`document.getElementById("gate-problem").checkVisibility() && document.activeElement.id === "key"`)
	b.until(`/^The server does not accept this key: it is mistyped, revoked or expired\./.test(document.getElementById("gate-problem").textContent)`)
	if left := eval[string](b, `location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})`); strings.Contains(left, "svc_live") {
		b.t.Errorf("the refused key is still stored: %s", left)
	}
	if shown := eval[string](b, `document.body.innerText + document.title`); strings.Contains(shown, "say ") || strings.Contains(shown, "wörd") {
		b.t.Errorf("the page still shows the conversation: %q", shown)
	}
}

func viewKeyRevoked(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b, id := openWithNewKey(t, browser, p, time.Time{})
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	session := b.session()
	b.do(chromedp.SendKeys("#text", "say 2 words"))
	start := time.Now()
	p.must("DELETE", "/v1/keys/"+id, nil)
	b.untilGate()
	t.Logf("the page asked for a key %v after the revocation", time.Since(start))
	b.fits()
	model.allow(2 * held) // the revoked key does not end the reply
	b.do(chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilReply("streaming", words(2*held))
	if b.session() != session {
		t.Errorf("session %s is shown, want %s", b.session(), session)
	}
	model.allow(long)
	if text := checkReply(b, p, "completed"); text != words(long) {
		t.Errorf("the reply is %q", text)
	}
	b.do(chromedp.Focus("#text"), pressEnter) // sends the text that was typed before the revocation
	b.untilReply("completed", words(2))
	b.until(`document.querySelectorAll("article").length === 4`)
}

// keyLife is the lifetime of a key that expires during a reply. One minute is enough to open the page on a slow machine. Other
// tests run meanwhile.
const keyLife = time.Minute

func viewKeyExpired(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	expiresAt := time.Now().Add(keyLife).Truncate(time.Millisecond)
	b, _ := openWithNewKey(t, browser, p, expiresAt)
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	b.untilGate()
	t.Logf("the page asked for a key %v after the old one expired", time.Since(expiresAt))
	b.do(chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilReply("streaming", words(held))
	model.allow(long)
	checkReply(b, p, "completed")
}

// visible returns an expression that is true if the error banner is shown and its text matches the pattern.
func visible(pattern string) string {
	return fmt.Sprintf(`(document.getElementById("problem").checkVisibility() && /%s/.test(document.querySelector("#problem p").textContent))`, pattern)
}

func viewOverflow(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	b := openPage(t, browser, p.url)
	b.allowedErrors = regexp.MustCompile(`status of 413`)
	b.smallWindow("refuse")
	b.say("say 60 words")
	b.untilReply("completed", words(60))
	typed := "say 4 words" + strings.Repeat(" buoy", 70)
	for n := 1; !eval[bool](b, visible("window is full")) && n < 20; n++ {
		b.say(typed)
		b.until(fmt.Sprintf(`document.querySelectorAll("article[data-status=completed][data-role=assistant]").length === %d || %s`, n+1, visible("window is full")))
	}
	b.until(visible(`^The context window is full: the message needs [\d,]+ tokens, 512 fit\.`))
	b.until(is(`document.getElementById("text").value`, typed))
	b.fits()
	b.do(chromedp.Click("#problem-action"))
	b.until(`document.querySelectorAll("article").length === 0 && document.getElementById("problem").hidden`)
	b.do(chromedp.Focus("#text"), pressEnter)
	b.untilReply("completed", words(4))
}

// recordAttacks is a script that records in window.ran each call and each policy violation that hostile content would cause.
const recordAttacks = `window.ran = [];
	for (const name of ["alert", "confirm", "prompt", "open", "print"]) window[name] = () => ran.push(name);
	addEventListener("securitypolicyviolation", (event) => ran.push("violates " + event.violatedDirective));`

// openGuarded opens a path of the page with the admin key and with recordAttacks.
func openGuarded(t *testing.T, browser context.Context, p *process, path string) *tab {
	t.Helper()
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.initScript(recordAttacks)
	b.openLink(p.url+path, declaredKey)
	b.untilChip("live")
	return b
}

// checkNothingRan checks that no hostile script ran, that the page contains no injected element, and that it requested only its
// own URLs.
func (b *tab) checkNothingRan() {
	b.t.Helper()
	if ran := eval[[]string](b, `ran`); len(ran) > 0 {
		b.t.Errorf("hostile content ran: %v", ran)
	}
	const injected = `[...document.querySelectorAll("body :is(script, style, iframe, object, embed, svg, math, link, meta, base, video, audio, img:not([src='/static/icon.svg'])), [onerror], [onload], [onclick], [style*=url], [srcdoc]")]`
	if found := eval[[]string](b, injected+`.map((e) => e.outerHTML.slice(0, 100))`); len(found) > 0 {
		b.t.Errorf("injected elements: %v", found)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	own := regexp.MustCompile(`^(?:http|ws)://[^/]+/(?:|\?session=.*|static/[\w./@-]+|v1/(?:stream|stream/tickets|sessions|sessions/\w+|sessions/\w+/messages)(?:\?.*)?)(?:#.*)?$`)
	for _, address := range b.requests {
		if !own.MatchString(address) {
			b.t.Errorf("the page requested %s", address)
		}
	}
}

// loadHostile loads web/testdata/hostile.mjs into the page: the texts as hostile.texts(size) and the check hostile.violations().
func (b *tab) loadHostile() {
	b.t.Helper()
	source, err := os.ReadFile("../../web/testdata/hostile.mjs")
	if err != nil {
		b.t.Fatal(err)
	}
	module := strings.ReplaceAll(string(source), "\nexport ", "\n")
	eval[bool](b, "(globalThis.hostile = (() => {"+module+"\nreturn { texts: hostile, violations }; })()) !== null")
}

// settled waits until the page has rendered all replies. It returns a checksum of the HTML of each reply, by message id.
func (b *tab) settled() map[string]int {
	b.t.Helper()
	const frames = 15 // number of frames without a change; until all text is rendered, the page renders some text in every frame
	b.resolves(fmt.Sprintf(`new Promise((resolve) => {
		let quiet = 0;
		new MutationObserver(() => (quiet = 0)).observe(document.getElementById("log"), { subtree: true, childList: true, characterData: true });
		const tick = () => (++quiet > %d ? resolve(true) : requestAnimationFrame(tick));
		tick();
	})`, frames))
	return eval[map[string]int](b, `Object.fromEntries([...document.querySelectorAll("article[data-role=assistant]")].map((e) => {
		let sum = 0;
		for (const c of e.querySelector(".text").innerHTML.replaceAll(' data-caret=""', "")) sum = (Math.imul(sum, 31) + c.codePointAt(0)) | 0;
		return [e.dataset.messageId, sum];
	}))`)
}

// hostileReplies tests the short and the long texts in parallel, each with a server and a tab, because together they take minutes
// on a slow machine. The long texts have a quarter of their size. The tests of package web render them whole.
func hostileReplies(t *testing.T, browser context.Context) {
	const short = 25_000
	b := openGuarded(t, browser, serveIn(t, t.TempDir(), newTextModel(t, 24).env()...), "/")
	b.loadHostile()
	var texts []string
	if err := json.Unmarshal([]byte(eval[string](b, `JSON.stringify(hostile.texts(1 / 8).map(([, text]) => text))`)), &texts); err != nil || len(texts) < 60 {
		t.Fatalf("read %d hostile texts, want at least 60: %v", len(texts), err)
	}
	for name, other := range map[string]func(text string) bool{
		"short": func(text string) bool { return text == "" || len(text) >= short },
		"long":  func(text string) bool { return len(text) < short },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := newTextModel(t, 24)
			p := serveIn(t, t.TempDir(), model.env()...)
			openGuarded(t, browser, p, "/").checkHostileReplies(p, model, slices.DeleteFunc(slices.Clone(texts), other))
		})
	}
}

// checkHostileReplies opens a session in which the model replies with each of the texts. The user sends the same text, if it is a
// valid message. After a reload, each reply must be rendered to the same HTML as after streaming.
func (b *tab) checkHostileReplies(p *process, model *textModel, texts []string) {
	b.t.Helper()
	session := p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"maxTokens": 1_000_000},
		"metadata": map[string]any{"title": texts[0][:min(len(texts[0]), 1000)]}})["sessionId"].(string)
	b.do(chromedp.Navigate(p.url + "/?session=" + session))
	b.untilChip("live")
	b.until(`!document.getElementById("empty").hidden`)
	for i, text := range texts {
		asked := fmt.Sprintf("text %d", i)
		if len(text) <= 10_000 && !strings.ContainsRune(text, 0) {
			asked = text
		}
		model.setReply(asked, text)
		p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": asked, "metadata": map[string]any{asked[:min(len(asked), 100)]: asked[:min(len(asked), 1000)]}})
	}
	b.until(fmt.Sprintf(`document.querySelectorAll("article[data-role=assistant][data-status=completed]").length === %d`, len(texts)))
	streamed := b.settled()
	b.checkRendered()
	b.do(chromedp.Reload())
	b.untilChip("live")
	b.until(`document.querySelectorAll("article").length > 0`)
	for eval[bool](b, `!document.getElementById("earlier").hidden`) {
		before := eval[int](b, `document.querySelectorAll("article").length`)
		eval[bool](b, `document.getElementById("earlier").click() ?? true`)
		b.until(fmt.Sprintf(`document.querySelectorAll("article").length > %d`, before))
	}
	again := b.settled()
	b.checkRendered()
	if len(again) != len(streamed) || len(streamed) != len(texts) {
		b.t.Errorf("%d texts, %d streamed, %d after a reload", len(texts), len(streamed), len(again))
	}
	for id, sum := range streamed {
		if again[id] != sum {
			b.t.Errorf("after a reload, reply %s is rendered differently: %s", id, eval[string](b, fmt.Sprintf(`document.querySelector("[data-message-id=%s] .text").innerHTML.slice(0, 300)`, id)))
		}
	}
}

// checkRendered checks that hostile.violations finds nothing in the rendered replies, that user messages are plain text, and that
// nothing ran.
func (b *tab) checkRendered() {
	b.t.Helper()
	b.loadHostile()
	for _, violation := range eval[[]string](b, `[...new Set([...document.querySelectorAll("article[data-role=assistant] .text")].flatMap((e) => hostile.violations(e)))]`) {
		b.t.Errorf("the rendered reply has %s", violation)
	}
	if elements := eval[int](b, `document.querySelectorAll("article[data-role=user] .text *").length`); elements > 0 {
		b.t.Errorf("users' messages were rendered as %d elements, want plain text", elements)
	}
	eval[bool](b, `document.querySelectorAll("article a:not([href])").forEach((a) => a.click()) ?? true`)
	b.checkNothingRan()
}

// hostileMetadata puts hostile text into titles, metadata, system messages and the model's errors.
func hostileMetadata(t *testing.T, browser context.Context) {
	const shown = `</p><img src=x onerror=alert(1)><script>alert(1)</script>"'{{1}}`
	const harm = shown + "\u202e" // right-to-left override, which would reverse the text after it
	model := newTextModel(t, 24)
	model.setReply(harm, harm+"💥")
	p := serveIn(t, t.TempDir(), model.env()...)
	session := p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef", "metadata": map[string]any{"title": harm, harm: harm}})["sessionId"].(string)
	b := openGuarded(t, browser, p, "/?session="+session)
	b.until(is(`document.getElementById("title").textContent`, shown))
	b.until(entry(shown, "a") + ` !== undefined`)
	b.inspect()
	for _, role := range []string{"user", "system"} {
		_, _, _ = p.call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": harm, "role": role, "metadata": map[string]any{harm: harm}})
	}
	b.until(`document.querySelectorAll("article[data-status=failed]").length === 2`)
	if shown := eval[string](b, reply+`.querySelector(".text").textContent`); shown != harm {
		t.Errorf("the reply is shown as %q", shown)
	}
	if note := eval[string](b, reply+`.querySelector(".note").textContent`); !strings.HasPrefix(note, "The model failed") || strings.ContainsAny(note, "<>") {
		t.Errorf("the note says %q", note)
	}
	// Each attempt opens all rows, because rows of new frames may be added meanwhile.
	b.until(`[...document.querySelectorAll(".frame")].filter((row) => (row.open = true) && row.querySelector(".inside") === null).length === 0`)
	b.do(chromedp.Click("#menu summary"), chromedp.Click("#delete"))
	b.until(fmt.Sprintf(`document.getElementById("confirm-question").textContent.includes(%q)`, "<img src=x onerror=alert(1)>"))
	b.do(pressEscape)
	b.do(chromedp.SendKeys("#find", harm), chromedp.Focus("#text"))
	b.checkNothingRan()
}

// hostileAddress opens addresses with a path to another API resource as the session id. The page must treat the path as an id.
func hostileAddress(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	id := p.must("POST", "/v1/keys", map[string]any{"name": "another", "scopes": []string{"read:sessions"}})["keyId"].(string)
	for _, session := range []string{"../keys/" + id, "%2e%2e/keys/" + id + "?", "../keys?", "<img src=x onerror=alert(1)>"} {
		b := openGuarded(t, browser, p, "/?session="+strings.ReplaceAll(strings.ReplaceAll(session, "%", "%25"), "?", "%3F"))
		b.allowedErrors = regexp.MustCompile(`status of 404`)
		b.until(visible("^Session not found"))
		b.until(`document.getElementById("menu").hidden`)
		if asked := b.requested("v1/keys"); asked != "" {
			t.Errorf("the page requested %s", asked)
		}
		if ran := eval[[]string](b, `ran`); len(ran) > 0 {
			t.Errorf("hostile content ran: %v", ran)
		}
	}
	if status, _, _ := p.call("POST", "/v1/keys/"+id+"/rotate", nil); status != http.StatusOK {
		t.Errorf("rotating the key returned %d, want 200: the page has changed the key", status)
	}
}

// viewRateLimit uses up a low rate limit. Then one tab sends a message and another opens a session. After a minute, the user can
// send again in the first tab, and the second tab opens the session without a click.
func viewRateLimit(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), append(newWordsModel(t, time.Millisecond).env(), `PARLEY_TIERS={"pro":{"requestsPerMinute":30}}`)...)
	sends := openPage(t, browser, p.url)
	sends.say("say 5 words")
	sends.untilReply("completed", words(5))
	opens := openPage(t, browser, p.url)
	opens.until(entry("say 5 words", "a") + ` !== undefined`)
	sends.allowedErrors = regexp.MustCompile(`status of 429`)
	opens.allowedErrors = sends.allowedErrors
	exhaustRateLimit(p)
	opens.until(entry("say 5 words", "a") + `.click() === undefined`)
	opens.until(visible("^Too many requests"))
	exhaustRateLimit(p) // again: on a slow machine, part of the limit may be free by now
	sends.say("say 7 words")
	sends.until(visible(`^Too many requests\. You can send again in \d+ s\. Your text is kept\.$`))
	sends.until(is(`document.getElementById("text").value`, "say 7 words"))
	first := eval[string](sends, `document.querySelector("#problem p").textContent`)
	sends.until(fmt.Sprintf(`document.querySelector("#problem p").textContent !== %q`, first))
	sends.checkEachDisplay("limited")

	// On a slow machine the limit becomes free in parts, so that a send can be refused again.
	again, replied := visible(`^You can send again now\.$`), `document.querySelectorAll("article[data-role=assistant][data-status=completed]").length === 2`
	for sends.until(again + " || " + replied); !eval[bool](sends, replied); sends.until(again + " || " + replied) {
		sends.do(chromedp.Focus("#text"), pressEnter)
		sends.until("!" + again)
	}
	sends.untilReply("completed", words(7))
	opens.untilReply("completed", words(7))
	opens.until(`document.querySelectorAll("article").length === 4`)
}

// exhaustRateLimit makes requests until the rate limit admits no more.
func exhaustRateLimit(p *process) {
	p.t.Helper()
	for left := 1; left > 0; {
		_, header, _, err := p.request("GET", "/v1/analytics/usage", nil)
		if _, scanErr := fmt.Sscan(header.Get("X-RateLimit-Remaining"), &left); err != nil || scanErr != nil {
			p.t.Fatal(err, scanErr)
		}
	}
}
