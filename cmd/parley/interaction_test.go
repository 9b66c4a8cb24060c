package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"parley/web/browsertest"
)

// TestPageInteraction tests typing, scrolling, browser history, display settings and keyboard use.
func TestPageInteraction(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, browser context.Context)
	}{
		{"typing during a reply keeps focus and text", pageTyping},
		{"scrolling up stops following the reply", pageScrolling},
		{"back and forward switch sessions", pageHistory},
		{"forced colours and 200 % zoom stay usable", pageDisplaySettings},
		{"Tab moves in visual order and shows the focus", pageTabOrder},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			scenario.play(t, browser)
		})
	}
}

func pageTyping(t *testing.T, browser context.Context) {
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say("say 60 words")
	b.untilReply("streaming", words(held))
	b.until(is(focused, "text"))
	b.do(chromedp.SendKeys("#text", "say "))
	model.allow(2 * held)
	b.untilReply("streaming", words(2*held))
	b.do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, input.ImeSetComposition, input.ImeSetCompositionParams{Text: "2", SelectionStart: 1, SelectionEnd: 1})
		return chromedp.Void{}, err
	}, pressEnter)
	b.until(is(`document.getElementById("text").value.trim()`, "say 2"))
	if sent := eval[int](b, `document.querySelectorAll("article[data-role=user]").length`); sent != 1 {
		t.Errorf("%d messages were sent, want 1", sent)
	}
	b.do(func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, input.InsertText, input.InsertTextParams{Text: "2"})
		return chromedp.Void{}, err
	}, pressEscape)
	checkReply(b, p, "cancelled")
	b.until(is(focused, "text"))
	b.do(pressEnter)
	b.untilReply("completed", words(2))
}

// distance is an expression for the distance, in pixels, between the scroll position and the end of the conversation.
const distance = `(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(document.getElementById("scroller"))`

func pageScrolling(t *testing.T, browser context.Context) {
	const n = 3000
	model := newWordsModel(t, time.Millisecond)
	model.allow(1000)
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say("say 3000 words")
	b.untilReply("streaming", words(1000))
	b.until(distance + ` < 2`)
	b.do(wheel(-300))
	b.until(distance + ` > 200 && document.querySelector(".jump button").checkVisibility()`)
	top := eval[float64](b, `document.getElementById("scroller").scrollTop`)
	model.allow(2000)
	b.untilReply("streaming", words(2000))
	if now := eval[float64](b, `document.getElementById("scroller").scrollTop`); now != top {
		t.Errorf("the text being read moved from %v to %v", top, now)
	}
	b.do(wheel(100_000))
	b.until(`document.querySelector(".jump button").hidden`)
	model.allow(n)
	checkReply(b, p, "completed")
	b.until(distance + ` < 2`)
}

// wheel turns the mouse wheel over the conversation. by is in pixels; a positive number scrolls down.
func wheel(by float64) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: 600, Y: 300, DeltaX: 0.001, DeltaY: by})
		return chromedp.Void{}, err
	}
}

func pageHistory(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	newTitled(p, "buoy")
	newTitled(p, "lamp")
	b := openPage(t, browser, p.url)
	title := `document.getElementById("title").textContent`
	for _, name := range []string{"buoy", "lamp"} {
		b.until(entry(name, "a") + `?.click() === undefined && ` + is(title, name))
	}
	b.until(`history.back() === undefined`)
	b.until(is(title, "buoy"))
	b.until(`history.back() === undefined`)
	b.until(is(title, "New session"))
	b.until(`history.forward() === undefined`)
	b.until(is(title, "buoy"))
	b.do(chromedp.Reload())
	b.until(is(title, "buoy"))
	b.untilChip("live")
	// A new session gets its id with its first message. The new address must replace the history entry, not add one.
	b.do(chromedp.Click("#new-session"))
	b.say("say 2 words")
	b.untilReply("completed", words(2))
	b.until(`history.back() === undefined`)
	b.until(is(title, "buoy"))
}

func pageDisplaySettings(t *testing.T, browser context.Context) {
	model := newTextModel(t, 24)
	model.setReply("Everything, please.", sampleConversation[3].reply+"\n\n"+sampleConversation[1].reply+"\n\n⏸")
	p := serveIn(t, t.TempDir(), model.env()...)
	b := openPage(t, browser, p.url)
	b.say("Everything, please.")
	b.until(reply + `?.querySelectorAll(".code").length === 2`)
	b.do(chromedp.EmulateViewport(1000, 700), func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "forced-colors", Value: "active"}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return chromedp.Void{}, err
	})
	b.photographAs("forced-colors")
	if moving := eval[int](b, `document.getAnimations().length`); moving > 0 {
		t.Errorf("%d animations run despite reduced motion", moving)
	}
	for _, seen := range []string{"#chip", "[data-caret]"} { // these elements show their state only by a background colour
		if colour := eval[string](b, `getComputedStyle(document.querySelector("`+seen+`"), "`+map[string]string{"#chip": "::before", "[data-caret]": "::after"}[seen]+`").backgroundColor`); colour == "rgba(0, 0, 0, 0)" {
			t.Errorf("%s is invisible with forced colours", seen)
		}
	}
	b.look("light", 500, 350)
	b.photographAs("zoomed")
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 500 {
		t.Errorf("at 200 %% the page is %d pixels wide, want at most 500", wide)
	}
	if room := eval[float64](b, `document.getElementById("scroller").clientHeight`); room < 100 {
		t.Errorf("at 200 %% the conversation is %v pixels high, want at least 100", room)
	}
	b.axe()
	model.release()
	b.until(reply + `.dataset.status === "completed"`)
}

func pageTabOrder(t *testing.T, browser context.Context) {
	p := serveIn(t, t.TempDir(), newWordsModel(t, time.Millisecond).env()...)
	b := openPage(t, browser, p.url)
	b.say("say 2 words")
	b.untilReply("completed", words(2))
	b.do(chromedp.Focus("#new-session"))
	var names []string
	for range 24 {
		b.do(press("Tab", 9, 0))
		names = append(names, eval[string](b, `((e) => e.id || e.closest("[id]")?.id || e.localName)(document.activeElement)`))
		unseen := eval[string](b, `((e) => {
			const style = getComputedStyle(e), around = getComputedStyle(e.closest("form") ?? e);
			const rect = e.getBoundingClientRect();
			const seen = rect.width > 0 && (parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none" || around.boxShadow !== "none");
			return seen || e === document.body ? "" : e.outerHTML.slice(0, 80);
		})(document.activeElement)`)
		if unseen != "" {
			t.Errorf("the focus is invisible at %s", unseen)
		}
	}
	const want = "find sessions sessions open-usage sidebar forget-key inspect simulator menu scroller log log log log text window body new-session"
	if got := strings.Join(names, " "); !strings.HasPrefix(got, want) {
		t.Errorf("Tab order is %s, want %s", got, want)
	}
}
