package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"parley/stream/openai"
	"parley/web/browsertest"
)

// TestPage tests the page in a browser, with a real server behind it.
func TestPage(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, browser context.Context)
	}{
		{"reload and second tab show the whole reply", pageReload},
		{"reload while deltas arrive leaves no gap", pageReloadDuringDeltas},
		{"stop keeps the partial reply", pageStop},
		{"lost connection resumes the reply", pageReconnect},
		{"repeated connection loss leaves no gap", pageFlakyNetwork},
		{"kill -9 of the server interrupts the reply", pageKill},
		{"restored backup replaces the shown history", pageRestoredBackup},
		{"drain completes the reply, then page reconnects", pageDrain},
		{"wrong key is refused and not stored", pageWrongKey},
		{"key in the address is not used if declined", pageDeclinedKey},
		{"key in the address replaces another if confirmed", pageSecondKey},
		{"without a model server the reply is simulated", pageSimulatedModel},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			scenario.play(t, browser)
		})
	}
}

// openPage opens the page with the admin key in a new browser profile. address is the URL of a server, or of a proxy in front of
// a server.
func openPage(t *testing.T, browser context.Context, address string) *tab {
	t.Helper()
	b := openTab(t, browser, address, chromedp.WithNewBrowserContext())
	b.openLink(address+"/", declaredKey)
	b.untilChip("live")
	return b
}

// openLink opens a link with a key, and confirms that the page may use the key.
func (b *tab) openLink(address, key string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address + "#key=" + key))
	b.until(`document.querySelector("#confirm[open]") !== null`)
	if eval[bool](b, `location.href.includes("svc_live") || sessionStorage["parley.key"] !== undefined`) {
		b.t.Error("before the user has confirmed, the key is in the address or in use")
	}
	b.do(chromedp.Click("#confirm button[value=yes]"))
}

// newestReply returns the status and the text of the newest reply in the server's history.
func newestReply(p *process, session string) (status, text string) {
	p.t.Helper()
	newest := p.must("GET", "/v1/sessions/"+session+"/messages?limit=1", nil)["data"].([]any)[0].(map[string]any)
	return newest["status"].(string), newest["content"].(string)
}

// markdown matches the characters that rendering changes in these tests: white space and asterisks.
var markdown = regexp.MustCompile(`[\s*]+`)

// checkReply waits until the page shows the newest reply with the status want. It compares status and text with the server's
// history, and returns the text from the history.
func checkReply(b *tab, p *process, want string) string {
	b.t.Helper()
	b.until(fmt.Sprintf(`%s?.dataset.status === %q`, reply, want))
	status, text := newestReply(p, b.session())
	if status != want {
		b.t.Errorf("the page shows the status %s, history has %s", want, status)
	}
	if shown := eval[string](b, reply+`.querySelector(".text").textContent`); markdown.ReplaceAllString(shown, "") != markdown.ReplaceAllString(text, "") {
		b.t.Errorf("the page shows %q, history has %q", shown, text)
	}
	return text
}

func pageReload(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	if address := eval[string](b, "location.href"); strings.Contains(address, "svc_live") || strings.Contains(address, "#") {
		t.Errorf("the key is still in the address: %s", address)
	}
	b.photograph("empty")
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	model.allow(2 * held)
	b.untilReply("streaming", words(2*held))
	b.photograph("streaming")

	b.do(chromedp.Reload())
	b.untilChip("live")
	b.untilReply("streaming", words(2*held))
	b.do(chromedp.Click("#menu summary"))
	second := b.opened(chromedp.Click("#another-tab"))
	second.untilChip("live")
	second.untilReply("streaming", words(2*held))
	if eval[bool](second, "opener !== null") {
		t.Error("the second tab can navigate the first")
	}
	model.allow(3 * held)
	b.untilReply("streaming", words(3*held))
	second.untilReply("streaming", words(3*held))
	model.allow(long)
	for _, b := range []*tab{b, second} {
		if text := checkReply(b, p, "completed"); text != words(long) {
			t.Errorf("the reply is %q", text)
		}
	}
	// A message sent in one tab appears in the other.
	second.say("say 2 words")
	b.untilReply("completed", words(2))
}

// pageReloadDuringDeltas looks for text lost between loading the history and subscribing. It compares the text while the reply is
// still streaming: the terminal frame carries the whole text and would hide a gap.
func pageReloadDuringDeltas(t *testing.T, browser context.Context) {
	const n = 2000
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say(fmt.Sprintf("say %d words", n))
	b.untilReply("streaming", words(held))
	for shown := n / 4; shown < n; shown += n / 4 {
		model.allow(shown)
		b.do(chromedp.Reload())
		b.untilReply("streaming", words(shown))
	}
	model.allow(n)
	if text := checkReply(b, p, "completed"); text != words(n) {
		t.Errorf("the reply has %d bytes, not %d", len(text), len(words(n)))
	}
}

func pageStop(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	b.do(chromedp.Click("#stop"))
	if text := checkReply(b, p, "cancelled"); text != words(held) {
		t.Errorf("the reply is %q", text)
	}
	b.until(`document.getElementById("stop").hidden`)
	b.say("say 2 words")
	b.untilReply("completed", words(2))
	if left := eval[string](b, `document.getElementById("text").value`); left != "" {
		t.Errorf("the composer still contains %q", left)
	}
	b.photograph("stopped")

	// The user can retry a stopped reply, edit its message, or send the message again.
	press := func(status, label string) {
		b.until(fmt.Sprintf(`((button) => button && (button.click(), true))([...document.querySelectorAll('article%s .actions button')]
			.findLast((button) => button.textContent === %q))`, status, label))
	}
	press("[data-status=cancelled]", "Try again")
	model.allow(long)
	b.untilReply("completed", words(60))
	press("[data-role=user]", "Edit as new")
	b.until(`document.activeElement.id === "text" && document.activeElement.value === "say 60 words"`)
	press("[data-role=user]", "Resend")
	b.until(`document.querySelectorAll("article[data-role=assistant][data-status=completed]").length === 3`)
	if left := eval[string](b, `document.getElementById("text").value`); left != "say 60 words" {
		t.Errorf("the composer now contains %q", left)
	}
}

func pageReconnect(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	proxy := newProxy(t, p)
	b := openPage(t, browser, proxy.url)
	b.allowedErrors = networkErrors
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	proxy.cut()
	b.untilChip("reconnecting")
	b.until(`document.getElementById("chip").textContent.startsWith("reconnecting")`)
	b.fits()
	b.photograph("reconnecting")
	model.allow(2 * held)
	proxy.connect(p)
	b.untilChip("live", "resumed")
	b.untilReply("streaming", words(2*held))
	model.allow(long)
	if text := checkReply(b, p, "completed"); text != words(long) {
		t.Errorf("the reply is %q", text)
	}
}

// networkErrors matches the browser's errors for connections that are cut or refused.
var networkErrors = regexp.MustCompile(`net::ERR_(CONNECTION|EMPTY_RESPONSE|SOCKET|INCOMPLETE|CONTENT_LENGTH)|^\w+: WebSocket connection to .* failed`)

func pageFlakyNetwork(t *testing.T, browser context.Context) {
	const n, enough = 700, 3
	model := newWordsModel(t, 20*time.Millisecond)
	model.allow(n - 50)
	p := serveIn(t, t.TempDir(), model.env()...)
	proxy := newProxy(t, p)
	b := openPage(t, browser, proxy.url)
	b.allowedErrors = networkErrors
	proxy.makeFlaky(rand.New(rand.NewPCG(1, 2)))
	proxy.cut() // the page connects again, and the proxy cuts each of its new connections early
	proxy.connect(p)
	b.untilChip("live", "resumed")
	b.say(fmt.Sprintf("say %d words", n))
	b.untilReply("streaming", words(n-50)) // checked before the terminal frame, which would hide a gap
	model.allow(n)
	if text := checkReply(b, p, "completed"); text != words(n) {
		t.Errorf("the reply has %d bytes, not %d", len(text), len(words(n)))
	}
	if cuts := proxy.flakyCuts(); cuts < enough {
		t.Errorf("only %d connections were cut", cuts)
	}
}

func pageKill(t *testing.T, browser context.Context) {
	model, dir := newHeldModel(t, held), t.TempDir()
	p := serveIn(t, dir, model.env()...)
	proxy := newProxy(t, p)
	b := openPage(t, browser, proxy.url)
	b.allowedErrors = networkErrors
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	untilJournal(t, dir, word(held-1))
	p.kill()
	b.untilChip("reconnecting", "connecting")
	again := serveIn(t, dir, model.env()...)
	proxy.connect(again)
	if text := checkReply(b, again, "interrupted"); text != words(held) {
		t.Errorf("the reply is %q", text)
	}
	b.until(reply + `.querySelector(".note").textContent.startsWith("Interrupted")`)
	b.checkEachDisplay("interrupted")
	b.untilChip("live")
	b.say("say 2 words")
	b.untilReply("completed", words(2))
}

// untilJournal waits until the store's journal contains text. The server writes the journal every 50 ms.
func untilJournal(t *testing.T, dir, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q is not in the journal", text), func() bool {
		journal, err := os.ReadFile(filepath.Join(dir, "parley.db-journal"))
		return err == nil && bytes.Contains(journal, []byte(text))
	})
}

// pageRestoredBackup restarts the server on an older copy of the store. The page then holds a cursor that is newer than the
// store.
func pageRestoredBackup(t *testing.T, browser context.Context) {
	model, dir, backup := newHeldModel(t, long), t.TempDir(), t.TempDir()
	p := serveIn(t, dir, model.env()...)
	proxy := newProxy(t, p)
	b := openPage(t, browser, proxy.url)
	b.allowedErrors = networkErrors
	b.say("say 2 words")
	b.untilReply("completed", words(2))
	p.kill()
	if err := os.CopyFS(filepath.Join(backup, "of"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	p = serveIn(t, dir, model.env()...)
	proxy.connect(p)
	b.untilChip("live")
	b.say("say 5 words")
	b.untilReply("completed", words(5))
	p.kill()
	p = serveIn(t, filepath.Join(backup, "of"), model.env()...)
	proxy.connect(p)
	b.untilReply("completed", words(2))
	b.until(`document.querySelectorAll("article").length === 2`)
	b.say("say 3 words")
	b.untilReply("completed", words(3))
	if text := checkReply(b, p, "completed"); text != words(3) {
		t.Errorf("the reply is %q", text)
	}
}

func pageDrain(t *testing.T, browser context.Context) {
	model, dir := newHeldModel(t, held), t.TempDir()
	p := serveIn(t, dir, model.env()...)
	proxy := newProxy(t, p)
	b := openPage(t, browser, proxy.url)
	b.allowedErrors = networkErrors
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	p.signal(syscall.SIGTERM)
	p.errs.await(func(text string) bool { return strings.Contains(text, "draining") }, p.exited)
	model.allow(long)
	b.untilReply("completed", words(long))
	if code := p.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.errs)
	}
	b.untilChip("reconnecting", "connecting")
	again := serveIn(t, dir, model.env()...)
	proxy.connect(again)
	b.untilChip("live", "resumed")
	if text := checkReply(b, again, "completed"); text != words(long) {
		t.Errorf("the reply is %q", text)
	}
}

func pageWrongKey(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.allowedErrors = regexp.MustCompile(`status of 401`)
	b.openLink(p.url+"/", "svc_live_wrong")
	b.until(`document.getElementById("gate-problem").textContent.startsWith("The server does not accept this key")`)
	b.photograph("wrong-key")
	if left := eval[string](b, `location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})`); strings.Contains(left, "svc_live") {
		t.Errorf("the wrong key is still stored: %s", left)
	}
	b.fits()
	b.do(chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilChip("live")
	b.say("Hello!")
	b.untilReply("completed", words(3))
	if left := eval[string](b, `location.href + JSON.stringify({...localStorage}) + document.cookie`); strings.Contains(left, "svc_live") {
		t.Errorf("the key outlives the tab: %s", left)
	}
}

func pageDeclinedKey(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.do(chromedp.Navigate(p.url + "/#key=" + declaredKey))
	b.until(`document.querySelector("#confirm[open]") !== null`)
	b.photograph("key-in-link")
	b.do(chromedp.Click("#confirm button[value=no]"))
	b.until(`document.querySelector("#confirm[open]") === null && !document.getElementById("gate").hidden`)
	if left := eval[string](b, `location.href + JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})`); strings.Contains(left, "svc_live") {
		t.Errorf("the declined key is stored: %s", left)
	}
	b.do(chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilChip("live")
}

func pageSecondKey(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	other := p.must("POST", "/v1/keys", map[string]any{"name": "another", "scopes": []string{"admin"}})["key"].(string)
	b := openPage(t, browser, p.url)
	b.until(`document.activeElement.id === "text"`)
	for _, answer := range []struct{ button, key string }{{"no", declaredKey}, {"yes", other}} {
		eval[bool](b, `(location.hash = "#key=`+other+`") !== ""`)
		b.until(`document.querySelector("#confirm[open]") !== null && !location.href.includes("svc_live")`)
		b.do(chromedp.Click("#confirm button[value=" + answer.button + "]"))
		b.until(`document.querySelector("#confirm[open]") === null`)
		b.untilChip("live")
		b.until(fmt.Sprintf(`sessionStorage["parley.key"] === %q`, answer.key))
	}
	// The session that the browser remembers may belong to another account. The address does not name that session, so the page
	// must show no error.
	eval[bool](b, `(localStorage["parley.session"] = "session_0000000000000000") !== ""`)
	b.allowedErrors = regexp.MustCompile(`status of 404`)
	b.do(chromedp.Navigate(p.url + "/"))
	b.until(`localStorage["parley.session"] === undefined`)
	b.untilChip("live")
	b.say("say 2 words")
	b.untilReply("completed", words(2))
	if !eval[bool](b, `document.getElementById("problem").hidden`) {
		t.Error("the page shows an error for a session that the address does not name")
	}
}

func pageSimulatedModel(t *testing.T, browser context.Context) {
	if _, _, ok := openai.Detect(t.Context()); ok {
		t.Skip("a local model server runs on this machine, so the simulated model is not used")
	}
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey)
	b := openPage(t, browser, p.url)
	eval[bool](b, `(window.lengths = new Set(), new MutationObserver(() => {
		const reply = `+reply+`;
		if (reply?.dataset.status === "streaming") lengths.add(reply.querySelector(".text").textContent.length);
	}).observe(document.getElementById("log"), { subtree: true, childList: true, characterData: true }), true)`)
	b.say("Hello, who are you?")
	b.until(reply + `?.dataset.status === "completed"`)
	if n := eval[int](b, `lengths.size`); n < 3 {
		t.Errorf("the reply was rendered in %d steps, want at least 3", n)
	}
	// The simulated reply is Markdown, and the page renders it.
	if text := eval[string](b, reply+`.querySelector(".text").textContent`); !strings.Contains(text, "simulated model") || strings.Contains(text, "**") {
		t.Errorf("the reply does not name the simulated model, or shows raw Markdown: %q", text)
	}
	b.until(reply + `.querySelector(".text pre code span") !== null`)
	b.fits()
	b.photograph("simulated")
}
