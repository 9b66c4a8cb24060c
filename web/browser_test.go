package web

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
)

// harness is an HTML page that contains only a message log, with the styles of the real page. The functions in
// testdata/harness.mjs fill the log. harnessHandler serves the harness with the content security policy of the real page.
const harness = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Harness</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/style.css"><link rel="stylesheet" href="/static/markdown.css">
<script type="module" src="/testdata/harness.mjs"></script>
<body><header></header><main><section id="chat"><div id="scroller" tabindex="0"><div id="column"><div id="log" role="log"></div></div></div></section></main>`

// timeout limits one step in the browser.
const timeout = browsertest.Timeout

// TestMain closes the browser that the tests share.
func TestMain(m *testing.M) { os.Exit(browsertest.Run(m)) }

// inBrowser is a Chromium tab that shows the harness. When the test ends, it fails if the harness wrote to the console, violated
// the content security policy or sent a request to another origin.
type inBrowser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string // guarded by mu
}

func openHarness(t *testing.T) *inBrowser {
	t.Helper()
	server := httptest.NewServer(harnessHandler())
	t.Cleanup(server.Close)
	b := &inBrowser{t: t}
	ctx, cancel := chromedp.NewContext(browsertest.Chromium(t), chromedp.WithNewBrowserContext(),
		chromedp.WithListener(func(event any) { b.record(server.URL, event) }))
	t.Cleanup(cancel)
	b.ctx = ctx
	if err := chromedp.Do(ctx, browsertest.Focus, chromedp.EmulateViewport(browsertest.Width, browsertest.Height)); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(server.URL))
	b.until(`"ready" in document.documentElement.dataset`)
	t.Cleanup(b.failOnComplaints)
	return b
}

// harnessHandler serves the harness at /, its scripts under /testdata, and the page's files under /static.
func harnessHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/static/", Handler(Options{}))
	mux.HandleFunc("/testdata/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		http.ServeFile(w, r, filepath.Join("testdata", filepath.Base(r.URL.Path)))
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", ContentSecurityPolicy)
		_, _ = w.Write([]byte(harness))
	})
	return mux
}

// record adds a complaint if an event reports a problem or a request to a URL outside origin.
func (b *inBrowser) record(origin string, event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(e.Request.URL, origin+"/") {
		b.complaints = append(b.complaints, "request to "+e.Request.URL)
	}
	if complaint := browsertest.Complaint(event); complaint != "" {
		b.complaints = append(b.complaints, complaint)
	}
}

func (b *inBrowser) failOnComplaints() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, complaint := range b.complaints {
		b.t.Errorf("error in the page: %s", complaint)
	}
}

func (b *inBrowser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval evaluates an expression in the page and returns its value. If the value is a promise, eval awaits it.
func eval[T any](b *inBrowser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// report calls a function of the harness that returns JSON, and decodes the result.
func report[T any](b *inBrowser, expression string) (value T) {
	b.t.Helper()
	if err := json.Unmarshal([]byte(eval[string](b, expression)), &value); err != nil {
		b.t.Fatal(err)
	}
	return value
}

// until waits until an expression in the page is true. After the timeout, the test fails.
func (b *inBrowser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression)); err == nil && yes {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			b.t.Fatalf("timed out waiting for: %s\n%q", expression, b.complaints)
		}
	}
}

// look sets the size of the tab in pixels and its preferred colour scheme, "light" or "dark".
func (b *inBrowser) look(width, height int64, scheme string) {
	b.t.Helper()
	if err := browsertest.Look(b.ctx, width, height, scheme); err != nil {
		b.t.Fatal(err)
	}
}

// scriptTime returns the time that the page has spent in scripts, in milliseconds.
func scriptTime(b *inBrowser) float64 {
	b.t.Helper()
	metrics, err := browsertest.Metrics(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return metrics["ScriptDuration"] * 1000
}
