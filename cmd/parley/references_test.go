package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// outside matches a reference to a document that is not in the repository. Code must state the rule and its reason instead. The
// pattern is written so that it does not match itself.
var outside = regexp.MustCompile(`design[ ]section|\((?:spec:|design\b)|\b(?:design|spec|house|words|parts)[.]md`)

func TestReferences_CiteOnlyDocumentsOfRepository(t *testing.T) {
	const top = "../.."
	files := 0
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != top && strings.HasPrefix(name, "."), entry.IsDir() && name == "dist":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".lua", ".js", ".mjs", ".jsx", ".css", ".html", ".yaml", ".md", ".proto", ".txtar":
		default:
			if name != "Makefile" {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if outside.MatchString(line) {
				t.Errorf("%s:%d: cites a document that is not in the repository: %s", strings.TrimPrefix(path, top+"/"), n, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("read %d files, want at least 100: %v", files, err)
	}
}
