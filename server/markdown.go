package server

import "strings"

// The part of Markdown that our own documents use: paragraphs, lists of one level, tables, `code` and **bold**.
// What comes out is text and what kind of text it is: the template escapes it, whatever it holds.
type (
	// docsBlock is a paragraph, a list, or a table, whose first row is its head; one of the three is set.
	docsBlock struct {
		Paragraph []docsSpan
		Items     [][]docsSpan
		Rows      [][][]docsSpan
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

// rows returns the cells of a table, without the line under its head.
func rows(table string) [][][]docsSpan {
	var all [][][]docsSpan
	for line := range strings.SplitSeq(table, "\n") {
		if strings.HasPrefix(line, "| ---") {
			continue
		}
		var row [][]docsSpan
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			row = append(row, spans(strings.TrimSpace(cell)))
		}
		all = append(all, row)
	}
	return all
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
