package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
)

// watchesTasks has a page keep how long its long tasks took, in ms.
const watchesTasks = `window.longTasks = [];
	new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });`

// TestPage_ReplyAtFullSpeed shows a reply of 10,000 tokens that come without a pause, and prints what that costs the page.
func TestPage_ReplyAtFullSpeed(t *testing.T) {
	t.Parallel()
	const tokens, size = 10_000, 4
	model := newTextModel(t, size)
	var text strings.Builder
	for i := 0; text.Len() < tokens*size; i++ {
		fmt.Fprintf(&text, "# Part %d\n\n", i)
		for _, e := range talk {
			text.WriteString(e.said + "\n\n")
		}
	}
	model.says("Say much.", text.String())
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openTab(t, browsertest.Chromium(t), p.url, chromedp.WithNewBrowserContext())
	b.atStart(watchesTasks)
	b.do(chromedp.Navigate(p.url + "/#key=" + declaredKey))
	b.untilChip("live")
	model.says("Hello!", "Hello!")
	b.say("Hello!") // what a session costs is not what a reply costs
	b.untilReply("completed", "Hello!")
	b.settled()
	eval[bool](b, `(longTasks.length = 0) === 0`)
	before, start := b.metrics(), time.Now()
	b.say("Say much.")
	// A test that asks all the time would be in the way.
	b.resolves(reachesEnd)
	took := time.Since(start)
	b.settled()
	after := b.metrics()

	longest, often := eval[float64](b, `Math.max(0, ...longTasks)`), eval[int](b, `longTasks.length`)
	script := (after["ScriptDuration"] - before["ScriptDuration"]) * 1000
	t.Logf("%d tokens, %d bytes, shown in %v: script %.0f ms, layout %.0f ms, style %.0f ms, tasks %.0f ms in all; %d tasks over 50 ms, the longest %.0f ms",
		tokens, text.Len(), took.Round(time.Millisecond), script, (after["LayoutDuration"]-before["LayoutDuration"])*1000,
		(after["RecalcStyleDuration"]-before["RecalcStyleDuration"])*1000, (after["TaskDuration"]-before["TaskDuration"])*1000, often, longest)
	if away := eval[float64](b, `(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(document.getElementById("scroller"))`); away > 2 {
		t.Errorf("the page stands %v pixels before the end", away)
	}
	if _, said := kept(p, b.session()); said != text.String() {
		t.Errorf("history has %d bytes of %d", len(said), text.Len())
	}
	if parts := eval[int](b, reply+`.querySelectorAll("table").length`); parts != strings.Count(text.String(), "# Part ") {
		t.Errorf("%d tables of %d are shown", parts, strings.Count(text.String(), "# Part "))
	}
}

const reachesEnd = `new Promise((resolve) => {
	const look = () => document.querySelectorAll("article[data-role=assistant][data-status=completed]").length === 2 ? resolve(true) : setTimeout(look, 50);
	look();
})`

// resolves waits for a promise in the page.
func (b *tab) resolves(promise string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](promise, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatal(err)
	}
}

// metrics are what Chromium has counted for the tab, in seconds where it is time.
func (b *tab) metrics() map[string]float64 {
	b.t.Helper()
	values, err := browsertest.Metrics(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return values
}
