package docs

import (
	"bytes"
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// heading is a heading of a page, for the page's list of contents.
type heading struct {
	ID, Text string
	Level    int
}

// rendered is a Markdown text as HTML, with its headings in order.
type rendered struct {
	HTML     template.HTML
	Headings []heading
}

// renderMarkdown renders CommonMark with tables. Headings are shifted down by shift levels. Raw HTML is dropped and dangerous
// links are emptied, so the result is safe to show.
func renderMarkdown(source string, shift int) (rendered, error) {
	extend := &pageRenderer{shift: shift}
	markdown := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(extend, 100))),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(extend, 100))),
	)
	var out bytes.Buffer
	context := parser.NewContext(parser.WithIDs(make(slugs)))
	if err := markdown.Convert([]byte(source), &out, parser.WithContext(context)); err != nil {
		return rendered{}, fmt.Errorf("render Markdown: %w", err)
	}
	return rendered{template.HTML(out.String()), extend.headings}, nil //nolint:gosec // goldmark escapes it
}

// renderDescription renders a description in the reference. Its headings are one level lower than in the source.
func renderDescription(source string) (template.HTML, error) {
	r, err := renderMarkdown(source, 1)
	return r.HTML, err
}

// renderLine renders a description for a table cell or a sentence: it removes the tags around a single paragraph.
func renderLine(source string) (template.HTML, error) {
	all, err := renderDescription(source)
	line := strings.TrimSpace(string(all))
	if inner, found := strings.CutPrefix(line, "<p>"); found && strings.Count(line, "<p>") == 1 {
		if inner, found = strings.CutSuffix(inner, "</p>"); found {
			return template.HTML(inner), err //nolint:gosec // goldmark has escaped it
		}
	}
	return all, err
}

// slugs generates the ids of headings as GitHub does. It holds the ids in use, because the id of a repeated heading gets a
// number.
type slugs map[string]bool

// slug returns a heading in lower case, with hyphens for spaces and without punctuation.
func slug(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-', r == '_':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Generate implements parser.IDs.
func (s slugs) Generate(value []byte, _ ast.NodeKind) []byte {
	base := slug(string(value))
	id := base
	for n := 1; s[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	s[id] = true
	return []byte(id)
}

// Put implements parser.IDs.
func (s slugs) Put(value []byte) { s[string(value)] = true }

// codePrefix is the prefix of the ids of table rows that explain an error code or a close code.
const codePrefix = "code-"

// pageRenderer extends goldmark for the served pages: headings and codes link to themselves, links lead to served pages, and a
// click selects a block of code.
type pageRenderer struct {
	shift    int
	headings []heading
}

// Transform implements parser.ASTTransformer. It collects the headings, rewrites the links, and gives ids to the rows of
// tables with the first column "code".
func (p *pageRenderer) Transform(document *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Heading:
			p.headings = append(p.headings, heading{idOf(n), textOf(n, source), n.Level})
		case *ast.Link:
			n.Destination = []byte(served(string(n.Destination)))
		case *tables.Table:
			if textOf(n.FirstChild().FirstChild(), source) == "code" {
				for row := n.FirstChild().NextSibling(); row != nil; row = row.NextSibling() {
					row.SetAttributeString("id", codePrefix+textOf(row.FirstChild(), source))
				}
			}
		}
		return ast.WalkContinue, nil
	})
}

// RegisterFuncs implements renderer.NodeRenderer.
func (p *pageRenderer) RegisterFuncs(register renderer.NodeRendererFuncRegisterer) {
	register.Register(ast.KindHeading, p.heading)
	register.Register(ast.KindFencedCodeBlock, p.code)
	register.Register(tables.KindTableCell, p.cell)
}

func (p *pageRenderer) heading(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Heading)
	level := min(n.Level+p.shift, 6)
	if entering {
		fmt.Fprintf(w, `<h%d id="%s">`, level, idOf(n))
		return ast.WalkContinue, nil
	}
	if level > 1 { // a page's title needs no link to itself
		anchor(w, idOf(n))
	}
	fmt.Fprintf(w, "</h%d>\n", level)
	return ast.WalkContinue, nil
}

func (p *pageRenderer) code(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<pre class="copy"><code>`)
		code := node.Lines().Value(source)
		html.DefaultWriter.RawWrite(w, bytes.TrimRight(code, "\n"))
		_, _ = w.WriteString("</code></pre>\n")
	}
	return ast.WalkSkipChildren, nil
}

// cell renders a cell of a table. Cells in the table's head, and codes that a row explains, become <th>. In a table of more
// than two columns, each body cell after the first of its row gets an attribute data-label with the heading of its column. On
// a phone, each cell is a line of its own, and the style sheet shows that heading.
func (p *pageRenderer) cell(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	row := node.Parent()
	id, explains := row.AttributeString("id")
	explains = explains && row.FirstChild() == node
	open, tag := "<td>", "td"
	switch {
	case row.Kind() == tables.KindTableHeader:
		open, tag = `<th scope="col">`, "th"
	case explains:
		open, tag = `<th scope="row">`, "th"
	case row.ChildCount() > 2 && row.FirstChild() != node:
		open = `<td data-label="` + template.HTMLEscapeString(textOf(columnHead(node), source)) + `">`
	}
	if entering {
		_, _ = w.WriteString(open)
		return ast.WalkContinue, nil
	}
	if explains {
		anchor(w, id.(string))
	}
	_, _ = w.WriteString("</" + tag + ">")
	return ast.WalkContinue, nil
}

// columnHead returns the cell at the head of a cell's column.
func columnHead(cell ast.Node) ast.Node {
	row := cell.Parent()
	head := row.Parent().FirstChild().FirstChild()
	for c := row.FirstChild(); c != cell; c = c.NextSibling() {
		head = head.NextSibling()
	}
	return head
}

// anchor writes a link to the element with that id. The link is inside the element.
func anchor(w util.BufWriter, id string) {
	fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to %[1]s">#</a>`, template.HTMLEscapeString(id))
}

func idOf(n *ast.Heading) string {
	id, _ := n.AttributeString("id")
	text, _ := id.([]byte)
	return string(text)
}

// textOf returns the text of a node without the marks of Markdown.
func textOf(node ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if leaf, ok := n.(*ast.Text); ok && entering {
			b.Write(leaf.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// guideLink matches a link from one guide to another; all guides are in one folder.
var guideLink = regexp.MustCompile(`^([a-z-]+)\.md$`)

// served converts a link in a guide's file to the link on the served page. In the file, links lead to other files, so that
// they work in the repository. Links to guides and to referenceFiles become links to their pages; other links stay.
func served(link string) string {
	path, fragment, found := strings.Cut(link, "#")
	if found {
		fragment = "#" + fragment
	}
	guide := guideLink.FindStringSubmatch(path)
	switch {
	case guide != nil && slices.Contains(guideNames, guide[1]):
		path = guidePath(guide[1])
	case slices.Contains(referenceFiles, path):
		path = referencePath
	}
	return path + fragment
}
