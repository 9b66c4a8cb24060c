package docs

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"regexp"
	"strings"

	"parley/web"
)

// guideNames are the guides, in the order in which they are best read.
var guideNames = []string{"protocol", "ai-sdk", "context-window", "limits", "keys", "redis", "deployment", "operation"}

// referenceFiles are the files that guides link to where they mean the reference.
var referenceFiles = []string{"../../README.md", "../../server/docs/openapi.yaml", "../../server/docs/asyncapi.yaml"}

func guidePath(name string) string { return referencePath + "/guides/" + name }

// guide is a guide as its page shows it.
type guide struct {
	Path, Title string
	About       template.HTML // its first paragraph
	Text        rendered      // all but the list of contents
	Current     bool          // whether it is the one that the page shows
}

// guidePage is what the page of a guide shows.
type guidePage struct {
	guide
	Guides         []guide
	Previous, Next *guide
}

// contentsList is the list of contents in a file, which the page makes from the headings.
var contentsList = regexp.MustCompile(`(?s)<!-- contents -->.*?<!-- /contents -->\n`)

// comment is a mark in a file that a page does not show.
var comment = regexp.MustCompile(`(?m)^<!-- .* -->\n`)

// readGuide reads a guide: a title, a paragraph that says what it is about, and sections.
func readGuide(name string) (guide, error) {
	file, err := fs.ReadFile(web.Guides(), name+".md")
	if err != nil {
		return guide{}, err
	}
	source := comment.ReplaceAllString(contentsList.ReplaceAllString(string(file), ""), "")
	text, err := renderMarkdown(source, 0)
	if err != nil {
		return guide{}, fmt.Errorf("guide %s: %w", name, err)
	}
	parts := strings.SplitN(source, "\n\n", 3)
	if len(parts) < 3 || len(text.Headings) == 0 || text.Headings[0].Level != 1 {
		return guide{}, fmt.Errorf("guide %s: want a title, a paragraph and sections", name)
	}
	about, err := renderLine(parts[1])
	return guide{Path: guidePath(name), Title: text.Headings[0].Text, About: about, Text: text}, err
}

func readGuides() (all []guide, err error) {
	for _, name := range guideNames {
		g, err := readGuide(name)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// renderGuide renders the page of a guide, with links to the others.
func renderGuide(name string) ([]byte, error) {
	guides, err := readGuides()
	if err != nil {
		return nil, err
	}
	page := guidePage{Guides: guides}
	for i := range guides {
		if guides[i].Path != guidePath(name) {
			continue
		}
		guides[i].Current = true
		page.guide = guides[i]
		if i > 0 {
			page.Previous = &guides[i-1]
		}
		if i+1 < len(guides) {
			page.Next = &guides[i+1]
		}
	}
	return execute("guide", page)
}

// execute renders a template of pages.html.
func execute(name string, data any) ([]byte, error) {
	pages, err := templates()
	if err != nil {
		return nil, fmt.Errorf("pages.html: %w", err)
	}
	var html bytes.Buffer
	if err := pages.ExecuteTemplate(&html, name, data); err != nil {
		return nil, fmt.Errorf("render the %s page: %w", name, err)
	}
	return html.Bytes(), nil
}
