package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
	"parley/web/npmtest"
)

// axeRun runs axe-core's rules for WCAG 2.2 AA and its best practices on the page and returns the violations.
const axeRun = `axe.run(document, {
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
	rules: {"target-size": {enabled: true}},
	resultTypes: ["violations"],
}).then(({violations, passes}) => JSON.stringify({
	passed: passes.length,
	violations: violations.map(({id, help, nodes}) => ({id, help, nodes: nodes.map(({target, failureSummary}) => ({target: target.join(" "), failureSummary}))})),
}))`

// axe fails the test for every violation that axe-core finds in the page as it is now. The page's content security policy does
// not apply to scripts that DevTools evaluates.
func (b *tab) axe() {
	b.t.Helper()
	source, err := os.ReadFile(filepath.Join(npmtest.Install(b.t, "testdata/axe"), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		b.t.Fatal(err)
	}
	if !eval[bool](b, `typeof axe === "object"`) {
		eval[bool](b, string(source)+"\n;true")
	}
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	answer, err := chromedp.Run(ctx, chromedp.Evaluate[string](axeRun, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	var found struct {
		Passed     int
		Violations []struct {
			ID, Help string
			Nodes    []struct{ Target, FailureSummary string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &found); err != nil || found.Passed < 10 {
		b.t.Fatalf("axe passed %d rules only: %v", found.Passed, err)
	}
	for _, v := range found.Violations {
		var where []string
		for _, n := range v.Nodes[:min(5, len(v.Nodes))] {
			where = append(where, n.Target+": "+strings.ReplaceAll(n.FailureSummary, "\n", " "))
		}
		b.t.Errorf("axe: %s, %d times: %s\n\t%s", v.ID, len(v.Nodes), v.Help, strings.Join(where, "\n\t"))
	}
}

// TestDocs_Accessible runs axe-core on /docs and follows its table of contents by keyboard.
func TestDocs_Accessible(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	for _, screen := range []struct {
		name  string
		width int64
		// begin opens the table of contents with the keyboard.
		begin func()
	}{
		{"wide", 1200, func() {}},
		{"phone", 390, func() {
			b.do(chromedp.Focus("#contents > details > summary"), pressEnter)
			b.until(`document.querySelector("#contents > details").open`)
		}},
	} {
		for _, scheme := range []string{"light", "dark"} {
			b.look(scheme, screen.width, 800)
			b.do(chromedp.Navigate(p.url + "/docs"))
			b.until(`document.readyState === "complete"`)
			b.photographAs("docs-" + scheme + "-" + screen.name)
			screen.begin()
			b.axe()
			b.followsContents()
		}
		if wide := eval[string](b, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth)
			.slice(0, 5).map((e) => e.tagName + " " + e.textContent.slice(0, 30)).join(", ")`); wide != "" {
			t.Errorf("too wide for a screen of %d pixels: %s", screen.width, wide)
		}
		for _, id := range []string{"try", "errors", "sendMessage", "close-codes", "frame.message.completed", "Session"} {
			b.do(chromedp.Navigate(p.url + "/docs#" + id))
			b.photographAs("docs-" + screen.name + "-" + id)
		}
	}
}

// followsContents follows a link of the table of contents, and selects a whole command with one click.
func (b *tab) followsContents() {
	b.t.Helper()
	const link = `#contents a[href="#createSession"]`
	if !eval[bool](b, "{ const a = document.querySelector(`"+link+"`); a.focus(); a === document.activeElement && a.checkVisibility({contentVisibilityAuto: true}) }") {
		b.t.Error("the table of contents cannot be reached by keyboard")
	}
	b.do(pressEnter)
	b.until(`location.hash === "#createSession" && Math.abs(document.getElementById("createSession").getBoundingClientRect().top) < 60`)
	b.do(chromedp.Click(`#createSession ~ pre`))
	if got := eval[string](b, `getSelection().toString()`); !strings.HasPrefix(got, `curl -X POST "$PARLEY/v1/sessions"`) || !strings.HasSuffix(got, "'") {
		b.t.Errorf("a click on a command selects %q", got)
	}
}
