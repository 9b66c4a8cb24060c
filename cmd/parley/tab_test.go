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

// tab is a browser tab that shows the page. At the end, the test fails if the page has done one of these: caused an error on the
// console, violated its Content-Security-Policy, sent a request to another origin, put a key into a URL.
type tab struct {
	t             *testing.T
	ctx           context.Context
	origin        string         // the page may send requests to this origin
	elsewhere     string         // the page may also send requests to this origin, if it is not ""
	allowedErrors *regexp.Regexp // errors that the test provokes
	mu            sync.Mutex
	requests      []string // guarded by mu; URLs of all requests and WebSockets
	complaint     []string // guarded by mu; errors of the page
}

// openTab returns a new tab of the browser parent. option chooses a new browser profile, or attaches to a tab that a page has
// opened.
func openTab(t *testing.T, parent context.Context, origin string, option chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t, origin: origin, allowedErrors: regexp.MustCompile(`^$`)}
	ctx, cancel := chromedp.NewContext(parent, option, chromedp.WithListener(b.record))
	t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // chromedp closes the tab when the context of this first call ends
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(browsertest.Width, browsertest.Height))
	t.Cleanup(b.checkRecorded)
	return b
}

// record collects requests and errors from the events of the tab.
func (b *tab) record(event any) {
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

// checkRecorded fails the test for each error and each forbidden request that record has collected.
func (b *tab) checkRecorded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaint {
		if !b.allowedErrors.MatchString(complaint) {
			b.t.Errorf("error on the page: %s", complaint)
		}
	}
	for _, address := range b.requests {
		asHTTP := strings.Replace(address, "ws://", "http://", 1)
		known := strings.HasPrefix(asHTTP, b.origin+"/") || b.elsewhere != "" && strings.HasPrefix(asHTTP, b.elsewhere+"/")
		if !known || strings.Contains(address, "svc_live") {
			b.t.Errorf("the page requested %s", address)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("no request of the page was recorded")
	}
}

// timeout limits one step in the browser, and one wait for a process.
const timeout = browsertest.Timeout

// do performs actions in the tab. The actions together have one timeout.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// initScript makes the tab run source in every page that it opens later, before the scripts of the page.
func (b *tab) initScript(source string) {
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

// The first two evaluations of until are firstPoll apart. The interval then grows up to lastPoll. So until notices a state that
// lasts only a moment, and a test that waits for a minute takes little processor time.
const firstPoll, lastPoll = 20 * time.Millisecond, 250 * time.Millisecond

// until waits until an expression is true in the page.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	for wait := firstPoll; ; wait = min(wait*5/4, lastPoll) {
		// Evaluate fails while a page is loading: try again.
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); err == nil && yes {
			return
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			b.t.Fatalf("timed out waiting for: %s\nThe page shows:\n%s\n%q", expression, eval[string](b, "document.body.innerText"), b.complaint)
		}
	}
}

// reply is an expression for the element of the newest reply in the page.
const reply = `[...document.querySelectorAll("article[data-role=assistant]")].at(-1)`

// untilReply waits until the newest reply has the given status and exactly the given text.
func (b *tab) untilReply(status, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`%s?.dataset.status === %q && %s.querySelector(".text").textContent === %q`, reply, status, reply, text))
}

// untilChip waits until the connection indicator shows one of the states.
func (b *tab) untilChip(states ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`" %s ".includes(" " + document.getElementById("chip").dataset.state + " ")`, strings.Join(states, " ")))
}

// say types a message into the composer and presses Enter.
func (b *tab) say(content string) {
	b.t.Helper()
	b.do(chromedp.SendKeys("#text", content), pressEnter)
}

// pressEnter presses Enter like a keyboard. chromedp's own key event inserts a line break even if the page prevents the default
// action.
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

// fits checks the page at a phone's width. No element may be wider than the screen, the header may be at most 70 pixels high, and
// the composer must not cover the newest message.
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

// session returns the id of the session that the page shows. It reads the id from the address.
func (b *tab) session() string {
	b.t.Helper()
	return eval[string](b, `new URLSearchParams(location.search).get("session")`)
}

// opened performs an action and returns the tab that the action opens.
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

// photograph writes three screenshots to the folder $PARLEY_SCREENSHOTS: light, dark, and at phone size. If the variable is not
// set, it does nothing.
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

// photographAs writes one screenshot of the page, with its present size and colours, to the folder $PARLEY_SCREENSHOTS. If the
// variable is not set, it does nothing.
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

// look sets the size of the tab in pixels, and the preferred colour scheme, light or dark. It waits until the page has rendered
// two frames.
func (b *tab) look(scheme string, width, height int64) {
	b.t.Helper()
	if err := browsertest.Look(b.ctx, width, height, scheme); err != nil {
		b.t.Fatal(err)
	}
	// The page applies the change in its next frame.
	b.do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`, chromedp.EvalAwaitPromise))
		return chromedp.Void{}, err
	})
}
