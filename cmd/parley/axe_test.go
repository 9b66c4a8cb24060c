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

// axeRun is an expression that checks the page with axe-core, for WCAG 2.2 AA and axe-core's best practices. Its value is JSON
// with the violations and the number of rules that passed.
const axeRun = `axe.run(document, {
	runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
	rules: {"target-size": {enabled: true}},
	resultTypes: ["violations"],
}).then(({violations, passes}) => JSON.stringify({
	passed: passes.length,
	violations: violations.map(({id, help, nodes}) => ({id, help, nodes: nodes.map(({target, failureSummary}) => ({target: target.join(" "), failureSummary}))})),
}))`

// axe fails the test for each violation that axe-core finds on the page in its current state. axe loads axe-core into the page,
// which works because the page's Content-Security-Policy does not apply to scripts that a test evaluates.
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
		b.t.Fatalf("%d rules of axe-core passed, want at least 10; error %v", found.Passed, err)
	}
	for _, v := range found.Violations {
		var where []string
		for _, n := range v.Nodes[:min(5, len(v.Nodes))] {
			where = append(where, n.Target+": "+strings.ReplaceAll(n.FailureSummary, "\n", " "))
		}
		b.t.Errorf("axe: %s, %d times: %s\n\t%s", v.ID, len(v.Nodes), v.Help, strings.Join(where, "\n\t"))
	}
}

// The test checks /docs and a guide with axe-core and by keyboard, on a wide screen and a phone, in light and dark colours.
func TestDocs_EachScreen_PassesAxeAndWorksByKeyboard(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey)
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	const guide = "/docs/guides/protocol"
	for _, screen := range []struct {
		name         string
		width        int64
		openContents func() // opens the table of contents by keyboard
	}{
		{"wide", 1200, func() {}},
		{"phone", 390, func() {
			b.do(chromedp.Focus("#contents > details > summary"), pressEnter)
			b.until(`document.querySelector("#contents > details").open`)
		}},
	} {
		for _, scheme := range []string{"light", "dark"} {
			b.look(scheme, screen.width, 800)
			for _, page := range []struct{ path, name, section string }{{"/docs", "docs", "createSession"}, {guide, "guide", "busy-sessions"}} {
				b.do(chromedp.Navigate(p.url + page.path))
				b.until(`document.readyState === "complete"`)
				b.photographAs(page.name + "-" + scheme + "-" + screen.name)
				screen.openContents()
				b.axe()
				b.followsContents(page.section)
				b.noOverflow(screen.width)
			}
			b.do(chromedp.Navigate(p.url + "/docs#createSession"))
			b.selectsCommand()
		}
		for _, id := range []string{"try", "errors", "sendMessage", "close-codes", "frame.message.completed", "Session"} {
			b.do(chromedp.Navigate(p.url + "/docs#" + id))
			b.photographAs("docs-" + screen.name + "-" + id)
		}
	}
	b.do(chromedp.Navigate(p.url+guide), chromedp.Click(`.turn a[rel="next"]`))
	b.until(`location.pathname === "/docs/guides/ai-sdk" && document.querySelector("#contents [aria-current]").textContent === document.querySelector("h1").textContent`)
}

// followsContents focuses the section's link in the table of contents, presses Enter, and waits until the section is shown.
func (b *tab) followsContents(section string) {
	b.t.Helper()
	link := "#contents a[href=\"#" + section + "\"]"
	if !eval[bool](b, "{ const a = document.querySelector(`"+link+"`); a.focus(); a === document.activeElement && a.checkVisibility({contentVisibilityAuto: true}) }") {
		b.t.Errorf("the link to %s in the table of contents cannot be focused", section)
	}
	b.do(pressEnter)
	b.until(`location.hash === "#` + section + `" && Math.abs(document.getElementById("` + section + `").getBoundingClientRect().top) < 60`)
}

// noOverflow fails the test if an element extends beyond the right edge of the screen.
func (b *tab) noOverflow(width int64) {
	b.t.Helper()
	if wide := eval[string](b, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth)
		.slice(0, 5).map((e) => e.tagName + " " + e.textContent.slice(0, 30)).join(", ")`); wide != "" {
		b.t.Errorf("too wide for a screen of %d pixels: %s", width, wide)
	}
}

// selectsCommand clicks the curl command of an operation and checks that the whole command is selected.
func (b *tab) selectsCommand() {
	b.t.Helper()
	b.do(chromedp.Click(`#createSession ~ pre`))
	if got := eval[string](b, `getSelection().toString()`); !strings.HasPrefix(got, `curl -X POST "$PARLEY/v1/sessions"`) || !strings.HasSuffix(got, "'") {
		b.t.Errorf("a click on a command selects %q", got)
	}
}
