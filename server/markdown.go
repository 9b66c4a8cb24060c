package server

import "strings"

// The part of Markdown that our own documents use: headings of the second level, paragraphs, lists of one level, tables, `code` and
// **bold**.
// What comes out is text and what kind of text it is: the template escapes it, whatever it holds.
type (
	// docsBlock is a heading, a paragraph, a list, or a table; one of the four is set. ID is the heading's.
	docsBlock struct {
		Heading, ID string
		Paragraph   []docsSpan
		Items       [][]docsSpan
		Rows        []docsRow
	}
	// docsRow is a row of a table, whose first is its head. A row has an ID if it explains a code.
	docsRow struct {
		ID    string
		Cells [][]docsSpan
	}
	// docsSpan is a piece of a line; Kind is code, bold, or nothing.
	docsSpan struct{ Text, Kind string }
)

// blocks splits a description into its paragraphs and lists.
func blocks(text string) []docsBlock {
	var all []docsBlock
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		switch {
		case block == "":
		case strings.HasPrefix(block, "## "):
			heading := block[len("## "):]
			all = append(all, docsBlock{Heading: heading, ID: slug(heading)})
		case strings.HasPrefix(block, "|"):
			all = append(all, docsBlock{Rows: rows(block)})
		case strings.HasPrefix(block, "* "):
			var items [][]docsSpan
			for item := range strings.SplitSeq(block[len("* "):], "\n* ") {
				items = append(items, spans(strings.ReplaceAll(item, "\n  ", "\n")))
			}
			all = append(all, docsBlock{Items: items})
		default:
			all = append(all, docsBlock{Paragraph: spans(block)})
		}
	}
	return all
}

// codePrefix begins the ids of rows that explain a code.
const codePrefix = "code-"

// rows returns the rows of a table, without the line under its head.
func rows(table string) (all []docsRow) {
	for line := range strings.SplitSeq(table, "\n") {
		if strings.HasPrefix(line, "| ---") {
			continue
		}
		var row docsRow
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			row.Cells = append(row.Cells, spans(strings.TrimSpace(cell)))
		}
		if len(all) > 0 && all[0].Cells[0][0].Text == "code" {
			row.ID = codePrefix + row.Cells[0][0].Text
		}
		all = append(all, row)
	}
	return all
}

// slug returns the id of a heading: its letters and digits, small, with a hyphen for whatever stands between.
func slug(heading string) string {
	words := strings.FieldsFunc(strings.ToLower(heading), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(words, "-")
}

// marks are what code and bold stand between; of two, the one that opens first counts.
var marks = []struct{ mark, kind string }{{"`", "code"}, {"**", "bold"}}

// spans splits a text at its marks. A mark without its partner is text.
func spans(text string) []docsSpan {
	var all []docsSpan
	for text != "" {
		before, inside, after, kind := cutSpan(text)
		if before != "" {
			all = append(all, docsSpan{Text: before})
		}
		if kind != "" {
			all = append(all, docsSpan{inside, kind})
		}
		text = after
	}
	return all
}

// cutSpan cuts a text around its first span of a kind; without one, all of it is before.
func cutSpan(text string) (before, inside, after, kind string) {
	before = text
	for _, m := range marks {
		head, rest, opens := strings.Cut(text, m.mark)
		body, tail, closes := strings.Cut(rest, m.mark)
		if opens && closes && body != "" && len(head) < len(before) {
			before, inside, after, kind = head, body, tail, m.kind
		}
	}
	return before, inside, after, kind
}
