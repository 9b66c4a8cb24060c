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

// countFrames is a script that counts the page's animation frames in countedFrames. It collects the durations of long tasks, in
// ms, in longTasks.
const countFrames = `window.longTasks = [];
	new PerformanceObserver((list) => longTasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: "longtask" });
	window.countedFrames = 0;
	(function count() { countedFrames++; requestAnimationFrame(count); })();`

// The model sends 10,000 tokens without a pause. The page may compute its layout only a few times in each frame, not once for
// each delta. The test counts layouts, because times depend on the machine; it only logs the times.
func TestPage_FastReply_FewLayouts(t *testing.T) {
	t.Parallel()
	const tokens, size = 10_000, 4
	model := newTextModel(t, size)
	var text strings.Builder
	for i := 0; text.Len() < tokens*size; i++ {
		fmt.Fprintf(&text, "# Part %d\n\n", i)
		for _, e := range sampleConversation {
			text.WriteString(e.reply + "\n\n")
		}
	}
	model.setReply("Long reply, please.", text.String())
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openTab(t, browsertest.Chromium(t), p.url, chromedp.WithNewBrowserContext())
	b.initScript(countFrames)
	b.openLink(p.url+"/", declaredKey)
	b.untilChip("live")
	model.setReply("Hello!", "Hello!")
	b.say("Hello!") // creates the session before the count begins
	b.untilReply("completed", "Hello!")
	b.settled()
	eval[bool](b, `(longTasks.length = countedFrames = 0) === 0`)
	before, start := b.metrics(), time.Now()
	b.say("Long reply, please.")
	// The test waits for one promise: polling would add tasks to the page.
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
	// Two or three layouts a frame are usual. One layout for each delta would be 10,000. tokens/10 is for layouts without a
	// frame: in a hidden tab, a timer updates the page.
	if most := 6*frames + tokens/10; layouts > most {
		t.Errorf("%d layouts in %d frames, want %d at most", layouts, frames, most)
	}
	if away := eval[float64](b, distance); away > 2 {
		t.Errorf("the page is %v pixels away from the end", away)
	}
	if _, stored := newestReply(p, b.session()); stored != text.String() {
		t.Errorf("the reply in history has %d bytes, want %d", len(stored), text.Len())
	}
	if parts := eval[int](b, reply+`.querySelectorAll("table").length`); parts != strings.Count(text.String(), "# Part ") {
		t.Errorf("%d tables are shown, want %d", parts, strings.Count(text.String(), "# Part "))
	}
}

// reachesEnd is an expression for a promise. It is fulfilled when the page shows the second completed reply.
const reachesEnd = `new Promise((resolve) => {
	const look = () => document.querySelectorAll("article[data-role=assistant][data-status=completed]").length === 2 ? resolve(true) : setTimeout(look, 50);
	look();
})`

// resolves waits until a promise in the page is fulfilled.
func (b *tab) resolves(promise string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](promise, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatal(err)
	}
}

// metrics returns Chromium's performance metrics of the tab by name. Durations are in seconds.
func (b *tab) metrics() map[string]float64 {
	b.t.Helper()
	values, err := browsertest.Metrics(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return values
}
