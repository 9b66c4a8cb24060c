package docs

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"parley/web"
)

// The tests below read README and the guides as files of the repository.

const (
	repository = "../.."
	readme     = "README.md"
	guideDir   = "web/guides"
)

// texts returns README and the guides, by path in the repository.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, file := range append([]string{readme}, guideFiles()...) {
		text, err := os.ReadFile(path.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(text)
	}
	return all
}

func guideFiles() (all []string) {
	for _, name := range guideNames {
		all = append(all, path.Join(guideDir, name+".md"))
	}
	return all
}

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	fileLink = regexp.MustCompile(`\]\(([^)]*)\)`)
)

func TestGuides_EachFileHasAPage(t *testing.T) {
	files, err := fs.Glob(web.Guides(), "*.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range guideNames {
		want = append(want, name+".md")
	}
	if slices.Sort(want); !slices.Equal(files, want) {
		t.Errorf("the files are %q, want %q", files, want)
	}
}

// TestGuides_LinksInRepositoryResolve checks the links between files of the repository. TestPages_LinksResolve checks the same
// links on the served pages.
func TestGuides_LinksInRepositoryResolve(t *testing.T) {
	all := texts(t)
	ids := make(map[string][]string)
	for file, text := range all {
		rendered, err := renderMarkdown(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range rendered.Headings {
			ids[file] = append(ids[file], h.ID)
		}
	}
	for file, text := range all {
		for _, link := range fileLink.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			name, fragment, hasFragment := strings.Cut(link[1], "#")
			target := path.Join(path.Dir(file), name)
			if name == "" {
				target = file
			}
			if _, err := os.Stat(path.Join(repository, target)); err != nil {
				t.Errorf("%s links to %s: %v", file, link[1], err)
			}
			// A fragment after a YAML file works only on the served page.
			if hasFragment && path.Ext(target) == ".md" && !slices.Contains(ids[target], fragment) {
				t.Errorf("%s links to %s, but there is no such heading", file, link[1])
			}
		}
	}
}

func TestReadme_LinksToEveryGuide(t *testing.T) {
	text := texts(t)[readme]
	for _, file := range guideFiles() {
		if !strings.Contains(text, "]("+file+")") {
			t.Errorf("README does not link to %s", file)
		}
	}
}

func TestGuides_ContentsListMatchesHeadings(t *testing.T) {
	entry := regexp.MustCompile(`(?m)^- \[(.*)\]\(#(.*)\)$`)
	for file, text := range texts(t) {
		if file == readme {
			continue
		}
		rendered, err := renderMarkdown(text, 0)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, h := range rendered.Headings {
			if h.Level == 2 {
				want = append(want, h.Text+" "+h.ID)
			}
		}
		for _, e := range entry.FindAllStringSubmatch(contentsList.FindString(text), -1) {
			got = append(got, e[1]+" "+e[2])
		}
		if !slices.Equal(got, want) {
			t.Errorf("the contents of %s are %q, the headings %q", file, got, want)
		}
	}
}

// README is an overview that can be read in a few minutes. Longer text belongs in a guide.
func TestReadme_HasAtMost150Lines(t *testing.T) {
	if lines := strings.Count(texts(t)[readme], "\n"); lines > 150 {
		t.Errorf("README has %d lines, at most 150 are allowed", lines)
	}
}

// A reader must read a sentence twice if it has more than 35 words.
func TestProse_Sentences_HaveAtMost35Words(t *testing.T) {
	const most = 35
	mark := regexp.MustCompile(`<!-- .*? -->`)
	for file, text := range texts(t) {
		for _, sentence := range sentences(mark.ReplaceAllString(fenced.ReplaceAllString(text, ""), "")) {
			if words := len(strings.Fields(sentence)); words > most {
				t.Errorf("%s: %d words: %s", file, words, sentence)
			}
		}
	}
}

func TestSentences_SplitsMarkdown(t *testing.T) {
	got := sentences("# A title\n\nOne\ntwo. Three (e.g. 3.5)?\n- four\n- five. Six\n\n| a | b c. D |\n| --- | --- |\n")
	want := []string{"# A title", "One two.", "Three (e.g. 3.5)?", "- four", "- five.", "Six", "a", "b c.", "D", "---", "---"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// sentences splits Markdown without code blocks into sentences. The end of a list item or of a table cell also ends a
// sentence.
func sentences(text string) (all []string) {
	item := regexp.MustCompile(`\n(?:[-*|]|\d\. )`)
	end := regexp.MustCompile(`[.!?]\s+[A-Z\[*` + "`" + `]`)
	add := func(part string) {
		part = strings.Join(strings.Fields(part), " ")
		for at := end.FindStringIndex(part); at != nil; at = end.FindStringIndex(part) {
			all = append(all, part[:at[0]+1])
			part = part[at[0]+2:]
		}
		if part != "" {
			all = append(all, part)
		}
	}
	for block := range strings.SplitSeq(text, "\n\n") {
		start := 0
		for _, at := range append(item.FindAllStringIndex(block, -1), []int{len(block), 0}) {
			part := block[start:at[0]]
			start = at[0]
			if !strings.HasPrefix(strings.TrimSpace(part), "|") {
				add(part)
				continue
			}
			for cell := range strings.SplitSeq(part, "|") {
				add(cell)
			}
		}
	}
	return all
}
