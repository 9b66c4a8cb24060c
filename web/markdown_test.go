package web

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The two subtests use one tab, because the second uses times that the first has measured.
func TestMarkdown_HostileText(t *testing.T) {
	b := openHarness(t)
	t.Run("safe and complete", func(t *testing.T) { checkHostile(t, b) })
	t.Run("rendered in linear time", func(t *testing.T) { checkGrowth(t, b) })
}

func checkHostile(t *testing.T, b *inBrowser) {
	result := report[struct {
		Wrong []string
		Count int
	}](b, `tests.hostile()`)
	for _, wrong := range result.Wrong {
		t.Error(wrong)
	}
	if result.Count < 60 {
		t.Errorf("the corpus has %d texts, want at least 60", result.Count)
	}
}

// checkGrowth renders each long hostile text twice: an eighth of its length, and the whole. Linear work takes 8 times as long for
// the whole text, quadratic work 64 times. The limit lies between these factors. A text over the limit is rendered again, so
// that a busy machine does not fail the test.
func checkGrowth(t *testing.T, b *inBrowser) {
	const limit, attempts = 40, 4
	growth, slow := map[string]float64{}, []string{}
	for range attempts {
		names, _ := json.Marshal(slow)
		for _, text := range report[[]struct {
			Name   string
			Growth float64
		}](b, fmt.Sprintf(`tests.growth(%s)`, names)) {
			growth[text.Name] = text.Growth
		}
		slow = []string{}
		for name := range growth {
			if growth[name] > limit {
				slow = append(slow, name)
			}
		}
		if len(slow) == 0 {
			break
		}
	}
	for _, name := range slow {
		t.Errorf("%s: the whole text took %.0f times as long as an eighth of it, want at most %d times", name, growth[name], limit)
	}
	if len(growth) < 15 {
		t.Errorf("%d texts were measured, want at least 15", len(growth))
	}
}

func TestMarkdown_Links_OnlySafeAddresses(t *testing.T) {
	b := openHarness(t)
	for _, wrong := range report[[]json.RawMessage](b, `tests.links()`) {
		t.Errorf("the href of a link is not the second text in [address, expected href]: %s", wrong)
	}
}

func TestMarkdown_RandomText_PiecesGiveSameHTML(t *testing.T) {
	b := openHarness(t)
	for _, wrong := range report[[]string](b, `tests.random(1500, 20261121)`) {
		t.Error(wrong)
	}
}

func TestMarkdown_Syntax_BecomesElements(t *testing.T) {
	b := openHarness(t)
	link := func(address, text string) string {
		return fmt.Sprintf(`<a href=%q title=%[1]q rel="noopener noreferrer nofollow" target="_blank">%[2]s</a>`, address, text)
	}
	code := func(label, language, text string) string {
		return fmt.Sprintf(`<div class="code"><div class="head"><span class="language">%s</span><button type="button" class="copy" aria-label="Copy code">Copy</button></div>`+
			`<pre role="group" tabindex="0" aria-label=%q><code>%s</code></pre></div>`, language, label, text)
	}
	for markdown, want := range map[string]string{
		"plain":                         "<p>plain</p>",
		"two\nlines":                    "<p>two\nlines</p>",
		"two\n\nparagraphs":             "<p>two</p><p>paragraphs</p>",
		"a *b* **c** _d_ __e__ ~~f~~":   "<p>a <em>b</em> <strong>c</strong> <em>d</em> <strong>e</strong> <s>f</s></p>",
		"# a\n## b\n### c\n#### d":      "<h3>a</h3><h4>b</h4><h5>c</h5><h6>d</h6>",
		"- a\n  - b\n- c":               "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
		"3. a\n4. b":                    `<ol start="3"><li>a</li><li>b</li></ol>`,
		"- [x] a\n- [ ] b":              `<ul><li><input type="checkbox" disabled="" aria-label="Done"> a</li><li><input type="checkbox" disabled="" aria-label="To do"> b</li></ul>`,
		"> a\n> b\n\nc":                 "<blockquote><p>a\nb</p></blockquote><p>c</p>",
		"a\n\n---\n\nb":                 "<p>a</p><hr><p>b</p>",
		"a `b < c` d":                   "<p>a <code>b &lt; c</code> d</p>",
		"[a](https://a.example)":        "<p>" + link("https://a.example/", "a") + "</p>",
		"see https://a.example/b_c.":    "<p>see " + link("https://a.example/b_c", "https://a.example/b_c.") + "</p>",
		"![a](https://a.example/b)":     "<p>" + link("https://a.example/b", "a") + "</p>",
		"[a](javascript:b)":             "<p><a>a (javascript:b)</a></p>",
		"a[0] and [b]":                  "<p>a<a>[0]</a> and <a>[b]</a></p>",
		"snake_case_name":               "<p>snake_case_name</p>",
		"```go\nfunc\n```":              code("Code, Go", "Go", "func"),
		"```\na\n\nb":                   code("Code", "", "a\n\nb"),
		"```Elvish x\na\n```":           code("Code, Elvish", "Elvish", "a"),
		"\\(x\\) and $y$":               `<p><span class="math">\(x\)</span> and <span class="math">$y$</span></p>`,
		"$$\nx\n$$":                     `<p><span class="formula" role="group" tabindex="0" aria-label="Formula">x` + "\n</span></p>",
		"| a | b |\n|---|---|\n| c |d|": `<div class="table" role="group" tabindex="0" aria-label="Table"><table><thead><tr><th scope="col"> a </th><th scope="col"> b </th></tr></thead><tbody><tr><td> c </td><td>d</td></tr></tbody></table></div>`,
	} {
		quoted, _ := json.Marshal(markdown)
		if got := eval[string](b, fmt.Sprintf(`tests.html(%s)`, quoted)); got != want {
			t.Errorf("%q\n got %s\nwant %s", markdown, got, want)
		}
	}
}

// TestLog_LinearTime compares the script times for a small input and for an input of 8 times its size. Linear work takes 8 times
// as long for the large input, quadratic work 64 times. The limit is 32 times, and 48 times for tokens, because a busy machine shows
// them in more writes. The time of the small input is the shortest of three. The large input is measured again only if its time
// exceeds the limit, because a busy machine does not make a script faster.
func TestLog_LinearTime(t *testing.T) {
	const attempts = 3
	b := openHarness(t)
	time := func(expression string) float64 {
		before := scriptTime(b)
		result := report[struct {
			MS, Longest float64
			Writes      int
			AtEnd       bool
		}](b, expression)
		took := scriptTime(b) - before
		t.Logf("%s: %.0f ms in all, %.0f ms of script, longest task %.0f ms, %d writes", expression, result.MS, took, result.Longest, result.Writes)
		return max(took, 1) // clocks are too coarse below a millisecond
	}
	for _, c := range []struct {
		name, small, large string
		limit              float64 // of the quotient of the times
	}{
		{"tokens at full speed", `tests.tokens(1250)`, `tests.tokens(10_000)`, 48},
		{"messages of a history", `tests.history(5, 4000)`, `tests.history(40, 4000)`, 32},
		{"200 KB on one line", `tests.history(1, 25_000, true)`, `tests.history(1, 200_000, true)`, 32},
		{"200 KB of Markdown", `tests.history(1, 25_000)`, `tests.history(1, 200_000)`, 32},
	} {
		small, large := math.Inf(1), math.Inf(1)
		for range attempts {
			small = min(small, time(c.small))
		}
		for try := 0; try < attempts && large > c.limit*small; try++ {
			large = min(large, time(c.large))
		}
		if large > c.limit*small {
			t.Errorf("%s: 8 times the size took %.0f times as long, want at most %.0f times", c.name, large/small, c.limit)
		}
	}
}

func TestLog(t *testing.T) {
	b := openHarness(t)
	for name, expression := range map[string]string{
		"the end of a reply replaces no nodes":            `tests.ends()`,
		"prose appears at once, user text as plain text":  `tests.prose()`,
		"one write per frame; a hidden tab loses no text": `tests.hidden()`,
		"scrolling up stops following the end":            `tests.jump()`,
		"older messages do not move the view":             `tests.prepend()`,
		"buttons copy the source and match the status":    `tests.actions()`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, wrong := range report[[]string](b, expression) {
				t.Error(wrong)
			}
		})
	}
}

func TestHighlight_ColoursTokens(t *testing.T) {
	b := openHarness(t)
	for _, c := range [][3]string{
		{"go", "func main() { return 1 } // done", "kwd:func func:main kwd:return num:1 cmnt:// done"},
		{"JavaScript", "const a = `b ${c}`; // d", "kwd:const"},
		{"json", `{"a": [1, true]}`, `var:"a" num:1 bool:true`},
		{"html", `<a href="b">c</a><!-- d -->`, `var:<a class:href oper:= str:"b" var:> var:</a var:> cmnt:<!-- d -->`},
		{"py", "def f(): return 'x'", "kwd:def"},
		{"sh", "echo $HOME # x", "var:$HOME"},
	} {
		quoted, _ := json.Marshal(c[:2])
		if got := eval[string](b, fmt.Sprintf(`tests.coloured(...%s)`, quoted)); !strings.Contains(got, c[2]) {
			t.Errorf("%s: %s is highlighted as %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

const reply = "# A reply, rendered while it is written\n\n" +
	"A reply is an **append-only text** with a *state*; a viewer holds nothing but an `offset` into it. See [the design](https://parley.example/design), or https://parley.example/wiki/Offset_(text).\n\n" +
	"## What falls out of it\n\n" +
	"1. A slow viewer gets fewer, larger frames.\n   - There is no queue for each viewer.\n   - It costs no memory:\n     - not here,\n     - nor there.\n2. Resuming is naming your `offset`, and Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft.\n3. A repeated delta is recognised.\n\n" +
	"### Tasks\n\n- [x] stream\n- [ ] rest\n\n" +
	"> If a feature seems to need a queue, look again.\n> It rarely does.\n\n" +
	"```go\n// Delta is what a viewer has not seen yet.\nfunc (r *Reply) Delta(offset int) (string, error) {\n\tif offset > len(r.text) {\n\t\treturn \"\", fmt.Errorf(\"offset %d lies beyond the text, which is %d bytes long at this time\", offset, len(r.text))\n\t}\n\treturn r.text[offset:], nil\n}\n```\n\n" +
	"| work | bare pipe | Parley's goal | remark that is rather long, so that the table is wide |\n|---|---|---|---|\n| CPU a token | 12.5 µs | 1.5× | embedded |\n| a turn | `196` | 500 allocations | with **Redis** |\n\n" +
	"```json\n{\"type\": \"message.delta\", \"offset\": 120, \"recovered\": true, \"cursor\": null}\n```\n\n" +
	"#### Smaller still\n\nA formula \\(e^{i\\pi} = -1\\), an ~~old~~ idea, and a [link that is none](javascript:alert).\n\n---\n\nThat is all."

// TestReply_ReadableAndWithinWidth also writes screenshots to the folder $PARLEY_SCREENSHOTS, if that variable is set.
func TestReply_ReadableAndWithinWidth(t *testing.T) {
	b := openHarness(t)
	quoted, _ := json.Marshal(reply)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1000, 390} {
			b.look(width, 2100, scheme)
			eval[any](b, fmt.Sprintf(`tests.show("How does streaming work?\n\n*Please* be brief.", %s)`, quoted))
			if least := report[struct {
				Ratio float64
				What  string
			}](b, `tests.contrast()`); least.Ratio < 4.5 {
				t.Errorf("%s: %s has a contrast of %.2f, want at least 4.5", scheme, least.What, least.Ratio)
			}
			if wide := eval[string](b, `[...document.querySelectorAll(".text > *, .code, article")].filter((e) => e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1 && !e.matches(".table, pre")).map((e) => e.outerHTML.slice(0, 80)).join("\n")`); wide != "" {
				t.Errorf("these elements are too wide for a tab of %d pixels: %s", width, wide)
			}
			photograph(b, fmt.Sprintf("reply-%s-%d", scheme, width))
		}
	}
	b.look(390, 700, "light")
	eval[any](b, fmt.Sprintf(`tests.show("How?", %s, "streaming")`, quoted))
	photograph(b, "reply-streaming")
	eval[any](b, `tests.away()`)
	photograph(b, "reply-jump")
}

func photograph(b *inBrowser, name string) {
	b.t.Helper()
	folder := os.Getenv("PARLEY_SCREENSHOTS")
	if folder == "" {
		return
	}
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), image, 0o600)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
