package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	devtools "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
)

// tab is a tab that shows the page. What it does wrong fails the test when that is over: errors on its console,
// violations of the content security policy, requests that leave the server.
type tab struct {
	t         *testing.T
	ctx       context.Context
	origin    string         // where its requests may go
	elsewhere string         // another origin where they may go
	forgiven  *regexp.Regexp // errors of the network that the test is about
	mu        sync.Mutex
	requests  []string // guarded by mu
	complaint []string // guarded by mu
}

// openTab opens an address in a new tab: with a profile of its own, or one that a page has opened.
func openTab(t *testing.T, parent context.Context, origin string, option chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t, origin: origin, forgiven: regexp.MustCompile(`^$`)}
	ctx, cancel := chromedp.NewContext(parent, option, chromedp.WithListener(b.watch))
	t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of this first call
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(browsertest.Width, browsertest.Height))
	t.Cleanup(b.judge)
	return b
}

// watch receives every event of the tab.
func (b *tab) watch(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		b.requests = append(b.requests, e.URL)
	}
	if complaint := browsertest.Complaint(event); complaint != "" {
		b.complaint = append(b.complaint, complaint)
	}
}

// judge fails the test for what watch has seen.
func (b *tab) judge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaint {
		if !b.forgiven.MatchString(complaint) {
			b.t.Errorf("the page complains: %s", complaint)
		}
	}
	for _, address := range b.requests {
		asHTTP := strings.Replace(address, "ws://", "http://", 1)
		known := strings.HasPrefix(asHTTP, b.origin+"/") || b.elsewhere != "" && strings.HasPrefix(asHTTP, b.elsewhere+"/")
		if !known || strings.Contains(address, "svc_live") {
			b.t.Errorf("the page asks for %s", address)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("no request of the page was seen")
	}
}

// timeout is for one step in the browser.
const timeout = browsertest.Timeout

// do does something.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// atStart has every page that the tab opens from now on run a script first.
func (b *tab) atStart(source string) {
	b.t.Helper()
	b.do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, devtools.AddScriptToEvaluateOnNewDocument, devtools.AddScriptToEvaluateOnNewDocumentParams{Source: source})
		return chromedp.Void{}, err
	})
}

// eval returns the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until an expression is true in the page.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		// While a page is loaded there may be nowhere to evaluate it.
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); err == nil && yes {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("timed out waiting for: %s\nThe page says:\n%s\n%q", expression, eval[string](b, "document.body.innerText"), b.complaint)
		}
	}
}

// reply is the newest reply in the page, as an expression.
const reply = `[...document.querySelectorAll("article[data-role=assistant]")].at(-1)`

// untilReply waits until the newest reply has a status and a text.
func (b *tab) untilReply(status, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`%s?.dataset.status === %q && %s.querySelector(".text").textContent === %q`, reply, status, reply, text))
}

// untilChip waits until the chip shows a state.
func (b *tab) untilChip(states ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`" %s ".includes(" " + document.getElementById("chip").dataset.state + " ")`, strings.Join(states, " ")))
}

// say types a message and Enter.
func (b *tab) say(content string) {
	b.t.Helper()
	b.do(chromedp.SendKeys("#text", content), pressEnter)
}

// pressEnter is the key as a keyboard has it. The library's own writes a line break even where the page prevents that.
func pressEnter(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
	const enter = 13
	for _, event := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Text: "\r", UnmodifiedText: "\r"}, {Type: input.DispatchKeyEventTypeKeyUp},
	} {
		event.Key, event.Code, event.WindowsVirtualKeyCode, event.NativeVirtualKeyCode = "Enter", "Enter", enter, enter
		if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, event); err != nil {
			return chromedp.Void{}, err
		}
	}
	return chromedp.Void{}, nil
}

// fits checks at a phone's width that nothing sticks out sideways, and that the newest message is still in sight.
func (b *tab) fits() {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(390, 500))
	b.until(`innerWidth === 390`)
	if wide := eval[string](b, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 390)
		.map((e) => e.tagName + "#" + e.id).join(" ")`); wide != "" {
		b.t.Errorf("too wide for a phone: %s", wide)
	}
	if height := eval[float64](b, `document.querySelector("header").offsetHeight`); height > 70 {
		b.t.Errorf("on a phone the header is %v pixels high", height)
	}
	b.until(`document.getElementById("log").getBoundingClientRect().bottom <= document.getElementById("foot").getBoundingClientRect().top`)
	b.do(chromedp.EmulateViewport(1000, 700))
}

// session is the id of the session that is shown.
func (b *tab) session() string {
	b.t.Helper()
	return eval[string](b, `new URLSearchParams(location.search).get("session")`)
}

// opened returns the tab that an action opens.
func (b *tab) opened(action chromedp.Action[chromedp.Void]) *tab {
	b.t.Helper()
	id := chromedp.WaitNewTarget(b.ctx, func(info *target.Info) bool { return strings.HasPrefix(info.URL, b.origin) })
	b.do(action)
	select {
	case id := <-id:
		return openTab(b.t, b.ctx, b.origin, chromedp.WithTargetID(id))
	case <-time.After(timeout):
		b.t.Fatal("no tab was opened")
		return nil
	}
}

// photograph writes screenshots to the folder $PARLEY_SCREENSHOTS, if that is set: light, dark, and as a phone has it.
func (b *tab) photograph(name string) {
	folder := os.Getenv("PARLEY_SCREENSHOTS")
	if folder == "" {
		return
	}
	b.t.Helper()
	for _, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1000, 700}, {"dark", "dark", 1000, 700}, {"phone", "light", 390, 844}} {
		b.look(look.scheme, look.width, look.height)
		b.photographAs(name + "-" + look.name)
	}
	b.do(chromedp.EmulateViewport(1000, 700))
}

// photographAs writes a screenshot of the page as it is to the folder $PARLEY_SCREENSHOTS, if that is set.
func (b *tab) photographAs(name string) {
	folder := os.Getenv("PARLEY_SCREENSHOTS")
	if folder == "" {
		return
	}
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), image, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// look sets the size of the tab, in pixels, and the colours that its user prefers, light or dark.
func (b *tab) look(scheme string, width, height int64) {
	b.t.Helper()
	if err := browsertest.Look(b.ctx, width, height, scheme); err != nil {
		b.t.Fatal(err)
	}
	// The page sees the change in its next frame.
	b.do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, chromedp.EvalAwaitPromise))
		return chromedp.Void{}, err
	})
}
