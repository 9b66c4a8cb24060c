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

// guideNames lists the guides in reading order.
var guideNames = []string{"protocol", "ai-sdk", "context-window", "limits", "keys", "redis", "deployment", "security", "operation", "reliability", "performance"}

// referenceFiles lists the files outside the guides' folder that guides may link to. On the served pages, these links lead to
// the reference.
var referenceFiles = []string{"../../README.md", "../../server/docs/openapi.yaml", "../../server/docs/asyncapi.yaml"}

// guideImages returns the names of the images in the guides' folder. A guide refers to an image by its name alone, so that the
// reference works in the repository and on the served page.
func guideImages() []string {
	names, err := fs.Glob(web.Guides(), "*.svg")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}

func guidePath(name string) string { return referencePath + "/guides/" + name }

// guide is a rendered guide.
type guide struct {
	Path, Title string
	About       template.HTML // the guide's first paragraph
	Text        rendered      // the whole guide without its list of contents
	Current     bool          // the page shows this guide
}

// guidePage is the template data for the page of a guide.
type guidePage struct {
	guide
	Guides         []guide
	Previous, Next *guide
}

// contentsList matches the list of contents in a guide's file. The served page does not show it, because the page generates
// its contents from the headings.
var contentsList = regexp.MustCompile(`(?s)<!-- contents -->.*?<!-- /contents -->\n`)

// comment matches a line that is an HTML comment. Pages do not show it.
var comment = regexp.MustCompile(`(?m)^<!-- .* -->\n`)

// readGuide reads and renders a guide. Its file must have a title, a paragraph about the guide, and sections.
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

// renderGuide renders the page of a guide, with links to the other guides.
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
