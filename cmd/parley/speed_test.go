package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// watchesTasks has a page keep how long its long tasks took, in ms.
const watchesTasks = `window.longTasks = [];
	new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });`

// TestAReplyAtFullSpeed is what 10,000 tokens without a pause cost the page. The machine may have much else to do, so that the
// limits are those of a mistake, unless it was idle before and after.
func TestAReplyAtFullSpeed(t *testing.T) {
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
	b := openTab(t, newBrowser(t), p.url, chromedp.WithNewBrowserContext())
	b.atStart(watchesTasks)
	b.do(chromedp.Navigate(p.url + "/#key=" + declaredKey))
	b.untilChip("live")
	model.says("Hello!", "Hello!")
	b.say("Hello!") // what a session costs is not what a reply costs
	b.untilReply("completed", "Hello!")
	b.settled()
	eval[bool](b, `(longTasks.length = 0) === 0`)
	idle := isIdle()
	before, start := b.metrics(), time.Now()
	b.say("Say much.")
	// A test that asks all the time would be in the way.
	b.resolves(reachesEnd)
	took := time.Since(start)
	b.settled()
	after := b.metrics()
	idle = isIdle() && idle

	longest, often := eval[float64](b, `Math.max(0, ...longTasks)`), eval[int](b, `longTasks.length`)
	script := (after["ScriptDuration"] - before["ScriptDuration"]) * 1000
	t.Logf("%d tokens, %d bytes, shown in %v (idle: %v): script %.0f ms, layout %.0f ms, style %.0f ms, tasks %.0f ms in all; %d tasks over 50 ms, the longest %.0f ms",
		tokens, text.Len(), took.Round(time.Millisecond), idle, script, (after["LayoutDuration"]-before["LayoutDuration"])*1000,
		(after["RecalcStyleDuration"]-before["RecalcStyleDuration"])*1000, (after["TaskDuration"]-before["TaskDuration"])*1000, often, longest)
	mostScript, mostTask := 5000.0, 1000.0
	if idle {
		mostScript, mostTask = 1000, 100
	}
	if script > mostScript || longest > mostTask {
		t.Errorf("the limits are %.0f ms of script and %.0f ms a task", mostScript, mostTask)
	}
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
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](promise, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatal(err)
	}
}

// metrics are what chromium has counted for the tab, in seconds where it is time.
func (b *tab) metrics() map[string]float64 {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, func(ctx context.Context, _ *chromedp.Target) (performance.GetMetricsResult, error) {
		if _, err := chromedp.Call(ctx, performance.Enable, performance.EnableParams{}); err != nil {
			return performance.GetMetricsResult{}, err
		}
		return chromedp.Call(ctx, performance.GetMetrics, cdp.Empty{})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, metric := range result.Metrics {
		values[metric.Name] = metric.Value
	}
	return values
}

// isIdle says whether nobody else wants two of the machine's cores: whoever keeps them busy for a while is not kept waiting.
func isIdle() bool {
	const while, wait = 200 * time.Millisecond, 3 * time.Millisecond
	var work sync.WaitGroup
	var longest [2]time.Duration
	for i := range longest {
		work.Go(func() {
			for start, last := time.Now(), time.Now(); last.Sub(start) < while; {
				now := time.Now()
				longest[i] = max(longest[i], now.Sub(last))
				last = now
			}
		})
	}
	work.Wait()
	return max(longest[0], longest[1]) < wait
}
