package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// exchange is a user message and the model's reply.
type exchange struct{ message, reply string }

// sampleConversation has replies that use every kind of Markdown that the page renders.
var sampleConversation = []exchange{
	{"How does a client resume a reply after a dropped connection?", `A reply is an **append-only text** with a *state*, so a client that reconnects sends only the position that it has reached. The server keeps nothing for it meanwhile.

1. The client keeps the newest ` + "`cursor`" + ` that it has received.
2. It connects again, and subscribes ` + "`after`" + ` that cursor:
   - the text that it missed arrives as **one** larger delta,
   - the text that the model writes from then on arrives as usual.
3. It recognises text that it has already by the ` + "`offset`" + `.

> If a feature seems to need a queue for each viewer, look again.

See [the design](https://parley.example/design), or https://parley.example/wiki/Offset_(text).`},
	{"Show me that in Go.", `A frame contains the text after the viewer's offset, and nothing else:

` + "```go" + `
// Delta returns what a viewer at an offset has not seen yet.
func (r *Reply) Delta(offset int) (string, error) {
	if offset > len(r.text) {
		return "", fmt.Errorf("offset %d is after the end of the text", offset)
	}
	return r.text[offset:], nil // no queue, no copy for each viewer
}
` + "```" + `

A fast viewer gets one token in each frame. A slow viewer gets fewer, larger frames.`},
	{"What is lost when?", `Almost nothing:

| event | loss | reason |
| --- | --- | --- |
| a reload, or a second tab | nothing | a viewer needs only a cursor |
| a lost connection | nothing | the model goes on without viewers |
| ` + "`kill -9`" + ` of the server | the last 50 ms | the journal is written every 50 ms |

A thousand viewers of one reply share **one text**, and the server encodes a frame once.`},
	{"Is anything left to do?", `# A list

- [x] stream
- [ ] rest

## A formula

\(e^{i\pi} = -1\) is inline, next to an ~~old~~ idea and a [forbidden link](javascript:alert).

### Another kind of code

` + "```json\n" + `{"type": "message.delta", "offset": 120, "recovered": true, "cursor": null}` + "\n```" + `

#### The smallest heading

---

That is all.`},
}

// checkEachDisplay checks the page in light and dark colours, at desktop and phone size. axe-core must find no violation, and the
// page must not be wider than the screen. It takes a screenshot of each combination.
func (b *tab) checkEachDisplay(name string) {
	b.t.Helper()
	for _, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"phone", "light", 390, 844}, {"phone-dark", "dark", 390, 844}, {"dark", "dark", 1000, 700}, {"light", "light", 1000, 700}} {
		b.look(look.scheme, look.width, look.height)
		b.photographAs("view-" + name + "-" + look.name)
		b.t.Run(name+" "+look.name, func(t *testing.T) {
			outer := b.t
			b.t = t
			defer func() { b.t = outer }()
			b.axe()
			if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > int(look.width) {
				t.Errorf("the page is %d pixels wide", wide)
			}
		})
	}
}

// view is a menu, dialog or message of the page, with the actions that open and close it.
type view struct {
	name        string
	open, close func(b *tab)
}

// doThen returns a function that performs an action and waits until an expression is true.
func doThen(does chromedp.Action[chromedp.Void], until string) func(b *tab) {
	return func(b *tab) {
		b.t.Helper()
		b.do(does)
		b.until(until)
	}
}

// clickThen returns a function that clicks an element and waits until an expression is true. The click works even if the phone
// layout hides the element.
func clickThen(selector, until string) func(b *tab) {
	return func(b *tab) {
		b.t.Helper()
		b.until(`document.querySelector("` + selector + `")?.click() === undefined`)
		b.until(until)
	}
}

func closeByEscape(b *tab) { b.do(pressEscape) }

// everyView shows each view of the page, from the key prompt to an overflow, and runs checkEachDisplay on it.
func everyView(t *testing.T, browser context.Context) {
	model := newTextModel(t, 24)
	p := serveIn(t, t.TempDir(), model.env()...)
	model.setReply("Hello!", "Hello!")
	for _, title := range []string{"Naming things in Go", "A weekend in Lisbon", "Why is the sky blue?", "Postgres or a file?", "Regular expressions, gently"} {
		session := newTitled(p, title)
		for range len(title) % 4 {
			p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "Hello!"})
		}
	}
	if os.Getenv("PARLEY_SCREENSHOTS") != "" {
		model.pace = 50 * time.Millisecond // 20 pieces a second, about the speed of a real model
	}
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.allowedErrors = regexp.MustCompile(`status of (401|413)`)
	b.do(chromedp.Navigate(p.url))
	b.until(`document.activeElement.id === "key"`)
	b.checkEachDisplay("gate")
	b.do(chromedp.SendKeys("#key", "svc_live_wrong"), pressEnter)
	b.until(`document.getElementById("gate-problem").checkVisibility()`)
	b.checkEachDisplay("gate-problem")
	b.do(chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilChip("live")
	b.until(`document.querySelectorAll("#sessions li").length === 5`)
	b.checkEachDisplay("empty")
	for i, e := range sampleConversation {
		model.setReply(e.message, e.reply)
		b.say(e.message)
		b.until(reply + `?.dataset.status === "completed" && document.querySelector("article:last-child").dataset.role === "assistant"`)
		b.until(`document.querySelector("article:nth-last-child(2) .text").textContent === ` + quoted(e.message))
		if i == 2 { // the screenshot in the README
			b.settled()
			b.look("light", 1200, 760)
			b.photographAs("page")
		}
	}
	model.pace = 0
	b.settled()
	b.checkEachDisplay("conversation")
	b.showEndings(model)
	b.checkViews(views)
}

func quoted(text string) string { return "\"" + strings.ReplaceAll(text, `"`, `\"`) + "\"" }

// showEndings shows replies that are streaming, stopped and failed.
func (b *tab) showEndings(model *textModel) {
	b.t.Helper()
	model.setReply("Begin, and wait.", "## While it is written\n\n- one\n- two ⏸")
	model.setReply("Begin, and fail.", "This begins well, and 💥")
	b.say("Begin, and wait.")
	b.until(reply + `.dataset.status === "streaming" && ` + reply + `.querySelector(".text").textContent.includes("two")`)
	b.checkEachDisplay("streaming")
	b.do(chromedp.Focus("#text"), pressEscape)
	b.until(reply + `.dataset.status === "cancelled"`)
	b.say("Begin, and fail.")
	b.until(reply + `.dataset.status === "failed"`)
	b.checkEachDisplay("stopped-and-failed")
}

// checkViews opens, checks and closes each view.
func (b *tab) checkViews(views []view) {
	b.t.Helper()
	for _, v := range views {
		v.open(b)
		b.checkEachDisplay(v.name)
		v.close(b)
	}
}

var views = []view{
	{"menu", clickThen("#menu summary", `document.getElementById("delete").checkVisibility()`), closeByEscape},
	{"simulator", clickThen("#simulator summary", `document.querySelector("#simulate-slow")?.checkVisibility()`), closeByEscape},
	{"confirm", clickThen("#delete", `document.querySelector("#confirm[open]") !== null`), closeByEscape},
	{"meter", clickThen("#window summary", `document.querySelector("#window dl").textContent.includes("tokens in total")`), closeByEscape},
	{"dry-run", func(b *tab) {
		b.do(chromedp.SendKeys("#text", "And what would that be?"))
		clickThen("#window summary", `!document.querySelector("#window button").disabled`)(b)
		clickThen("#window button", `document.querySelector("#preview[open] li") !== null`)(b)
	}, closeByEscape},
	{"usage", clickThen("#open-usage", `document.querySelectorAll("#usage[open] .limit").length === 3 && document.querySelectorAll("#usage .unit").length === 24`), closeByEscape},
	{"inspector", func(b *tab) {
		b.inspect()
		b.until(row("send") + ` !== undefined`)
		b.until(row("send") + `.querySelector("summary").click() === undefined`)
		b.until(row("send") + `.querySelector("[role=tab]") !== null`)
	}, clickThen("#inspect", `document.getElementById("inspector").hidden`)},
	{"no-session-found", func(b *tab) {
		b.do(pressCtrlK, chromedp.SendKeys("#find", "nothing of that name"))
		b.until(`document.querySelector("#sessions .state").textContent.startsWith("No matching session")`)
	}, func(b *tab) { b.do(pressEscape); b.until(is(focused, "text")) }},
	{"sidebar", doThen(pressCtrlK, is(focused, "find")), closeByEscape},
	{"overflow", func(b *tab) {
		b.until(`document.getElementById("new-session").click() === undefined`)
		b.smallWindow("refuse")
		b.until(`(document.getElementById("text").value = "buoy ".repeat(900)) !== ""`)
		b.do(chromedp.SendKeys("#text", " "), pressEnter)
		b.until(visible("window is full"))
	}, closeByEscape},
}
