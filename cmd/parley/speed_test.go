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

// countsFrames has a page count its frames, and keep how long its long tasks took, in ms.
const countsFrames = `window.longTasks = [];
	new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
	window.countedFrames = 0;
	(function count() { countedFrames++; requestAnimationFrame(count); })();`

// TestPage_FastReply streams 10,000 tokens without a pause. It counts instead of measuring time: the page may write and lay out
// a few times a frame, however many deltas arrive. The times that it prints judge nothing.
func TestPage_FastReply(t *testing.T) {
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
	b.atStart(countsFrames)
	b.do(chromedp.Navigate(p.url + "/#key=" + declaredKey))
	b.untilChip("live")
	model.says("Hello!", "Hello!")
	b.say("Hello!") // making the session is not part of what is counted
	b.untilReply("completed", "Hello!")
	b.settled()
	eval[bool](b, `(longTasks.length = countedFrames = 0) === 0`)
	before, start := b.metrics(), time.Now()
	b.say("Say much.")
	// One promise instead of polling, which would disturb the page.
	b.resolves(reachesEnd)
	took := time.Since(start)
	b.settled()
	after := b.metrics()

	frames, layouts := eval[int](b, `countedFrames`), int(after["LayoutCount"]-before["LayoutCount"])
	longest, often := eval[float64](b, `Math.max(0, ...longTasks)`), eval[int](b, `longTasks.length`)
	t.Logf("%d tokens, %d bytes, shown in %v: %d frames, %d layouts; script %.0f ms, layout %.0f ms, style %.0f ms, tasks %.0f ms in all; %d tasks over 50 ms, the longest %.0f ms",
		tokens, text.Len(), took.Round(time.Millisecond), frames, layouts, (after["ScriptDuration"]-before["ScriptDuration"])*1000,
		(after["LayoutDuration"]-before["LayoutDuration"])*1000, (after["RecalcStyleDuration"]-before["RecalcStyleDuration"])*1000,
		(after["TaskDuration"]-before["TaskDuration"])*1000, often, longest)
	// Two or three layouts a frame are usual. One a delta would be 10,000; without frames, timers write instead.
	if most := 6*frames + tokens/10; layouts > most {
		t.Errorf("%d layouts in %d frames, want %d at most", layouts, frames, most)
	}
	if away := eval[float64](b, `(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(document.getElementById("scroller"))`); away > 2 {
		t.Errorf("the page is %v pixels away from the end", away)
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
