package docs

import (
	"strings"
	"testing"
)

func TestRenderMarkdown_ElementsBecomeHTML(t *testing.T) {
	const link = ` <a class="anchor" href="#%" aria-label="Link to %">#</a>`
	anchored := func(id string) string { return strings.ReplaceAll(link, "%", id) }
	for name, test := range map[string]struct{ source, want string }{
		"paragraphs":     {"One\n`two`.\n\nThree.", "<p>One\n<code>two</code>.</p><p>Three.</p>"},
		"title":          {"# A title", `<h1 id="a-title">A title</h1>`},
		"heading":        {"## The AI SDK's `own`", `<h2 id="the-ai-sdks-own">The AI SDK’s <code>own</code>` + anchored("the-ai-sdks-own") + `</h2>`},
		"same headings":  {"## A\n\n## A", `<h2 id="a">A` + anchored("a") + `</h2><h2 id="a-1">A` + anchored("a-1") + `</h2>`},
		"table":          {"| a | b |\n| --- | --- |\n| 1 | 2 |", `<table><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>`},
		"wide table":     {"| a | b | `c` |\n| --- | --- | --- |\n| 1 | 2 | 3 |", `<table><thead><tr><th scope="col">a</th><th scope="col">b</th><th scope="col"><code>c</code></th></tr></thead><tbody><tr><td>1</td><td data-label="b">2</td><td data-label="c">3</td></tr></tbody></table>`},
		"table of codes": {"| code | b |\n| --- | --- |\n| `a_b` | 2 |", `<table><thead><tr><th scope="col">code</th><th scope="col">b</th></tr></thead><tbody><tr id="code-a_b"><th scope="row"><code>a_b</code>` + anchored("code-a_b") + `</th><td>2</td></tr></tbody></table>`},
		"code":           {"```sh\na <b>\n```", `<pre class="copy"><code>a &lt;b&gt;</code></pre>`},
		"HTML block":     {"<script>alert(1)</script>", `<!-- raw HTML omitted -->`},
		"HTML in line":   {"a <b onclick=x>b</b>", `<p>a <!-- raw HTML omitted -->b<!-- raw HTML omitted --></p>`},
		"HTML in code":   {"`<b onclick=\"x\">`", `<p><code>&lt;b onclick=&quot;x&quot;&gt;</code></p>`},
		"dangerous link": {"[a](javascript:alert(1))", `<p><a href="">a</a></p>`},
		"guide link":     {"[a](limits.md#tokens)", `<p><a href="/docs/guides/limits#tokens">a</a></p>`},
		"reference link": {"[a](../../server/docs/openapi.yaml#errors)", `<p><a href="/docs#errors">a</a></p>`},
		"own link":       {"[a](#b)", `<p><a href="#b">a</a></p>`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := renderMarkdown(test.source, 0)
			html := strings.ReplaceAll(strings.TrimSpace(string(got.HTML)), ">\n<", "><")
			if want := strings.ReplaceAll(test.want, "’", "'"); html != want || err != nil {
				t.Errorf("got  %s\nwant %s (%v)", html, want, err)
			}
		})
	}
}

func TestRenderMarkdown_Headings_ListedAndShifted(t *testing.T) {
	got, err := renderMarkdown("# A\n\n## B `c`\n", 1)
	want := []heading{{"a", "A", 1}, {"b-c", "B c", 2}}
	if err != nil || len(got.Headings) != 2 || got.Headings[0] != want[0] || got.Headings[1] != want[1] {
		t.Errorf("got %v, want %v (%v)", got.Headings, want, err)
	}
	if !strings.Contains(string(got.HTML), "<h3") {
		t.Errorf("the headings are not shifted: %s", got.HTML)
	}
}

func TestRenderLine_SingleParagraph_WithoutTags(t *testing.T) {
	for source, want := range map[string]string{
		"The `id`.":   "The <code>id</code>.",
		"One.\n\nTwo": "<p>One.</p>\n<p>Two</p>\n",
	} {
		if got, err := renderLine(source); string(got) != want || err != nil {
			t.Errorf("%q: got %q, want %q (%v)", source, got, want, err)
		}
	}
}
