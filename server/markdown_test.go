package server_test

import (
	"strings"
	"testing"

	"parley/server"
)

func TestDescriptionsAreRendered(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a paragraph":  {"One\ntwo.", "<p>One\ntwo.</p>"},
		"two":          {"One.\n\nTwo.\n", "<p>One.</p><p>Two.</p>"},
		"code":         {"The `field` and `a.b`.", "<p>The <code>field</code> and <code>a.b</code>.</p>"},
		"bold":         {"**Errors** have", "<p><strong>Errors</strong> have</p>"},
		"code in bold": {"**the `id`**", "<p><strong>the `id`</strong></p>"},
		"bold in code": {"`**a**`", "<p><code>**a**</code></p>"},
		"a list":       {"Holds:\n\n* one\n  goes on\n* `two`", "<p>Holds:</p><ul><li>one\ngoes on</li><li><code>two</code></li></ul>"},
		"a table": {"| a | `b` |\n| --- | --- |\n| <i> | 2 |",
			`<table><thead><tr><th scope="col">a</th><th scope="col"><code>b</code></th></tr></thead><tbody><tr><td>&lt;i&gt;</td><td>2</td></tr></tbody></table>`},
		"a heading": {"One.\n\n## The AI SDK's `own`\n\nTwo.",
			"<p>One.</p><h3 id=\"the-ai-sdk-s-own\">The AI SDK&#39;s `own` <a class=\"anchor\" href=\"#the-ai-sdk-s-own\" aria-label=\"Link to the-ai-sdk-s-own\">#</a></h3><p>Two.</p>"},
		"a table of codes": {"| code | why |\n| --- | --- |\n| `a_b` | x |",
			`<table><thead><tr><th scope="col">code</th><th scope="col">why</th></tr></thead><tbody><tr id="code-a_b"><th scope="row"><code>a_b</code> <a class="anchor" href="#code-a_b" aria-label="Link to code-a_b">#</a></th><td>x</td></tr></tbody></table>`},
		"half a mark":        {"2 ** 3 and a ` alone", "<p>2 ** 3 and a ` alone</p>"},
		"an empty mark":      {"`` and ****", "<p>`` and ****</p>"},
		"HTML":               {"<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"},
		"HTML in code":       {"`<b onclick=\"x\">`", "<p><code>&lt;b onclick=&#34;x&#34;&gt;</code></p>"},
		"HTML in bold":       {"**<i>**", "<p><strong>&lt;i&gt;</strong></p>"},
		"HTML in a list":     {"* <img src=x onerror=y>", "<ul><li>&lt;img src=x onerror=y&gt;</li></ul>"},
		"marks around a tag": {"`<`**script**`>`", "<p><code>&lt;</code><strong>script</strong><code>&gt;</code></p>"},
	} {
		got, err := server.RenderMarkdown(test.text)
		if err != nil || strings.ReplaceAll(got, ">\n<", "><") != test.want {
			t.Errorf("%s: %q, want %q (%v)", name, got, test.want, err)
		}
	}
}

func TestTheDocsShowNoMarks(t *testing.T) {
	a := start(t, echo).call("GET", "/docs", nil, "Authorization", "")
	for _, mark := range []string{"`", "**", "\n* "} {
		if i := strings.Index(a.raw, mark); i >= 0 {
			t.Errorf("%q is shown raw: %q", mark, a.raw[max(0, i-60):min(len(a.raw), i+60)])
		}
	}
}
