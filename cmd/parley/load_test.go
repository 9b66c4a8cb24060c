package main

import (
	"testing"

	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
)

// The test measures in a browser the number of bytes that a first visit loads until the page is shown. A test of package web
// computes the same figure from the files. 60,000 bytes take about a second over a slow mobile connection.
func TestPage_FirstLoad_Below60kB(t *testing.T) {
	t.Parallel()
	const most = 60_000
	browser := browsertest.Chromium(t)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.do(chromedp.Navigate(p.url + "/"))
	b.until(`document.readyState === "complete" && !document.getElementById("gate").hidden`)
	const entries = `[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]`
	t.Log(eval[string](b, entries+`.map((e) => e.encodedBodySize + " " + new URL(e.name).pathname).join(", ")`))
	if bytes := eval[int](b, entries+`.reduce((sum, e) => sum + e.encodedBodySize, 0)`); bytes > most || bytes < 10_000 {
		t.Errorf("the first load takes %d bytes, want 10,000 to %d", bytes, most)
	}
	if plain := eval[string](b, entries+`.filter((e) => e.encodedBodySize >= 500 && e.encodedBodySize >= e.decodedBodySize).map((e) => e.name).join(", ")`); plain != "" {
		t.Errorf("the server sent these files without compression: %s", plain)
	}
}
