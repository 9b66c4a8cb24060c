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

// exchange is a message and the model's reply.
type exchange struct{ asked, said string }

// talk is a conversation whose replies use every kind of Markdown that the page renders.
var talk = []exchange{
	{"How does a client resume a reply after a dropped connection?", `A reply is an **append-only text** with a *state*, so a client that comes back says only how far it has read. Nothing is kept for it meanwhile.

1. It keeps the newest ` + "`cursor`" + ` that it was given.
2. It connects again, and subscribes ` + "`after`" + ` that cursor:
   - what lies behind it comes as **one** larger delta,
   - what the model says from then on comes as it is said.
3. What it is shown twice it knows by its ` + "`offset`" + `.

> If a feature seems to need a queue for each viewer, look again.

See [the design](https://parley.example/design), or https://parley.example/wiki/Offset_(text).`},
	{"Show me that in Go.", `A frame is what lies behind the viewer's offset, and nothing else:

` + "```go" + `
// Delta returns what a viewer at an offset has not seen yet.
func (r *Reply) Delta(offset int) (string, error) {
	if offset > len(r.text) {
		return "", fmt.Errorf("offset %d lies beyond the text", offset)
	}
	return r.text[offset:], nil // no queue, no copy for each viewer
}
` + "```" + `

A viewer that keeps up gets a token a frame; a slow one gets fewer, larger frames.`},
	{"What is lost when?", `Next to nothing, whatever happens on the way:

| what happens | what is lost | why |
| --- | --- | --- |
| a reload, or a second tab | nothing | a cursor is all that a viewer has |
| a dead network | nothing | the model goes on without viewers |
| ` + "`kill -9`" + ` of the server | the last 50 ms | the journal is written each tick |

A thousand viewers of one reply share **one text**, and a frame is encoded once.`},
	{"Is anything left to do?", `# A list

- [x] stream
- [ ] rest

## A formula

\(e^{i\pi} = -1\) stands in a line, an ~~old~~ idea and a [link that is none](javascript:alert) too.

### Another kind of code

` + "```json\n" + `{"type": "message.delta", "offset": 120, "recovered": true, "cursor": null}` + "\n```" + `

#### The smallest heading

---

That is all.`},
}

// eachLook runs axe-core on the page and takes a screenshot, light and dark, at desktop and phone size.
func (b *tab) eachLook(name string) {
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

// view is a menu, dialog or message of the page, with what opens and closes it.
type view struct {
	name        string
	open, close func(b *tab)
}

// by returns a function that performs an action and waits until an expression is true.
func by(does chromedp.Action[chromedp.Void], until string) func(b *tab) {
	return func(b *tab) {
		b.t.Helper()
		b.do(does)
		b.until(until)
	}
}

// clicks returns a function that clicks an element, even one that the phone layout hides, and waits for an expression.
func clicks(selector, until string) func(b *tab) {
	return func(b *tab) {
		b.t.Helper()
		b.until(`document.querySelector("` + selector + `")?.click() === undefined`)
		b.until(until)
	}
}

func esc(b *tab) { b.do(pressEscape) }

// looksLike opens every view in turn.
func looksLike(t *testing.T, browser context.Context) {
	model := newTextModel(t, 24)
	p := serveIn(t, t.TempDir(), model.env()...)
	model.says("Hello!", "Hello!")
	for _, title := range []string{"Naming things in Go", "A weekend in Lisbon", "Why is the sky blue?", "Postgres or a file?", "Regular expressions, gently"} {
		session := titled(p, title)
		for range len(title) % 4 {
			p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "Hello!"})
		}
	}
	if os.Getenv("PARLEY_SCREENSHOTS") != "" {
		model.pace = 50 * time.Millisecond // the speed of a usual model
	}
	b := openTab(t, browser, p.url, chromedp.WithNewBrowserContext())
	b.forgiven = regexp.MustCompile(`status of (401|413)`)
	b.do(chromedp.Navigate(p.url))
	b.until(`document.activeElement.id === "key"`)
	b.eachLook("gate")
	b.do(chromedp.SendKeys("#key", "svc_live_wrong"), pressEnter)
	b.until(`document.getElementById("gate-problem").checkVisibility()`)
	b.eachLook("gate-problem")
	b.do(chromedp.SendKeys("#key", declaredKey), pressEnter)
	b.untilChip("live")
	b.until(`document.querySelectorAll("#sessions li").length === 5`)
	b.eachLook("empty")
	for i, e := range talk {
		model.says(e.asked, e.said)
		b.say(e.asked)
		b.until(reply + `?.dataset.status === "completed" && document.querySelector("article:last-child").dataset.role === "assistant"`)
		b.until(`document.querySelector("article:nth-last-child(2) .text").textContent === ` + quoted(e.asked))
		if i == 2 { // README's picture
			b.settled()
			b.look("light", 1200, 760)
			b.photographAs("page")
		}
	}
	model.pace = 0
	b.settled()
	b.eachLook("conversation")
	b.endings(model)
	b.open(views)
}

func quoted(text string) string { return "\"" + strings.ReplaceAll(text, `"`, `\"`) + "\"" }

// endings shows replies that are streaming, stopped and failed.
func (b *tab) endings(model *textModel) {
	b.t.Helper()
	model.says("Begin, and wait.", "## While it is written\n\n- one\n- two ⏸")
	model.says("Begin, and fail.", "This begins well, and 💥")
	b.say("Begin, and wait.")
	b.until(reply + `.dataset.status === "streaming" && ` + reply + `.querySelector(".text").textContent.includes("two")`)
	b.eachLook("streaming")
	b.do(chromedp.Focus("#text"), pressEscape)
	b.until(reply + `.dataset.status === "cancelled"`)
	b.say("Begin, and fail.")
	b.until(reply + `.dataset.status === "failed"`)
	b.eachLook("stopped-and-failed")
}

func (b *tab) open(views []view) {
	b.t.Helper()
	for _, v := range views {
		v.open(b)
		b.eachLook(v.name)
		v.close(b)
	}
}

var views = []view{
	{"menu", clicks("#menu summary", `document.getElementById("delete").checkVisibility()`), esc},
	{"simulator", clicks("#simulator summary", `document.querySelector("#simulate-slow")?.checkVisibility()`), esc},
	{"confirm", clicks("#delete", `document.querySelector("#confirm[open]") !== null`), esc},
	{"meter", clicks("#window summary", `document.querySelector("#window dl").textContent.includes("tokens in total")`), esc},
	{"dry-run", func(b *tab) {
		b.do(chromedp.SendKeys("#text", "And what would that be?"))
		clicks("#window summary", `!document.querySelector("#window button").disabled`)(b)
		clicks("#window button", `document.querySelector("#preview[open] li") !== null`)(b)
	}, esc},
	{"usage", clicks("#open-usage", `document.querySelectorAll("#usage[open] .limit").length === 3 && document.querySelectorAll("#usage .unit").length === 24`), esc},
	{"inspector", func(b *tab) {
		b.inspect()
		b.until(row("send") + ` !== undefined`)
		b.until(row("send") + `.querySelector("summary").click() === undefined`)
		b.until(row("send") + `.querySelector("[role=tab]") !== null`)
	}, clicks("#inspect", `document.getElementById("inspector").hidden`)},
	{"no-session-found", func(b *tab) {
		b.do(pressCtrlK, chromedp.SendKeys("#find", "nothing of that name"))
		b.until(`document.querySelector("#sessions .state").textContent.startsWith("No matching session")`)
	}, func(b *tab) { b.do(pressEscape); b.until(is(focused, "text")) }},
	{"sidebar", by(pressCtrlK, is(focused, "find")), esc},
	{"overflow", func(b *tab) {
		b.until(`document.getElementById("new-session").click() === undefined`)
		b.small("refuse")
		b.until(`(document.getElementById("text").value = "buoy ".repeat(900)) !== ""`)
		b.do(chromedp.SendKeys("#text", " "), pressEnter)
		b.until(visible("window is full"))
	}, esc},
}
