package docs

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"parley/web"
)

// get returns the response to GET of a path.
func get(t *testing.T, d *Docs, path string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := d.Find(path)
	if err != nil || handler == nil {
		t.Fatalf("find %s: %v, %v", path, handler, err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// pages returns all HTML pages by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	d, all := New(), make(map[string]string)
	for _, path := range append([]string{referencePath}, guidePaths()...) {
		w := get(t, d, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
			w.Header().Get("Content-Security-Policy") != web.ContentSecurityPolicy {
			t.Errorf("%s: status %d, headers %v", path, w.Code, w.Header())
		}
		all[path] = w.Body.String()
	}
	return all
}

func guidePaths() (all []string) {
	for _, name := range guideNames {
		all = append(all, guidePath(name))
	}
	return all
}

func TestFind_UnknownPath_Nil(t *testing.T) {
	for _, path := range []string{"/", "/docs/", "/docs/guides", "/docs/guides/", "/docs/guides/nothing", "/docs/guides/protocol.md"} {
		if handler, err := New().Find(path); handler != nil || err != nil {
			t.Errorf("%s: got the handler %v and the error %v, want nil", path, handler, err)
		}
	}
}

func TestFind_Documents_ServedAsYAML(t *testing.T) {
	for path, begins := range map[string]string{"/openapi.yaml": "openapi: 3.1.", "/asyncapi.yaml": "asyncapi: 3.0."} {
		w := get(t, New(), path)
		if w.Header().Get("Content-Type") != "application/yaml" || !strings.HasPrefix(w.Body.String(), begins) {
			t.Errorf("%s: %q %.40q", path, w.Header().Get("Content-Type"), w.Body)
		}
	}
}

var (
	idAttribute   = regexp.MustCompile(` id="([^"]*)"`)
	hrefAttribute = regexp.MustCompile(` href="([^"]*)"`)
)

// idsOf returns the ids of a page. A duplicate id fails the test.
func idsOf(t *testing.T, path, page string) map[string]bool {
	t.Helper()
	ids := make(map[string]bool)
	for _, id := range idAttribute.FindAllStringSubmatch(page, -1) {
		if ids[id[1]] {
			t.Errorf("%s has the id %q twice", path, id[1])
		}
		ids[id[1]] = true
	}
	return ids
}

// TestPages_ImagesResolve checks every image of every guide.
func TestPages_ImagesResolve(t *testing.T) {
	found := 0
	for path, text := range pages(t) {
		for _, source := range regexp.MustCompile(`<img src="([^/"]+)"`).FindAllStringSubmatch(text, -1) {
			w := get(t, New(), guidePath(source[1]))
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" || !strings.HasPrefix(w.Body.String(), "<svg ") ||
				w.Header().Get("Content-Security-Policy") != web.ContentSecurityPolicy {
				t.Errorf("%s shows %s: status %d, headers %v", path, source[1], w.Code, w.Header())
			}
			found++
		}
	}
	if found == 0 || found != len(guideImages()) {
		t.Errorf("the guides show %d images, and their folder has %d", found, len(guideImages()))
	}
}

// TestPages_LinksResolve checks every link of every page.
func TestPages_LinksResolve(t *testing.T) {
	all := pages(t)
	ids := make(map[string]map[string]bool)
	for path, page := range all {
		ids[path] = idsOf(t, path, page)
	}
	page := web.Handler(web.Options{})
	for path, text := range all {
		for _, link := range hrefAttribute.FindAllStringSubmatch(text, -1) {
			target, fragment, hasFragment := strings.Cut(link[1], "#")
			if target == "" {
				target = path
			}
			switch {
			case ids[target] != nil && (!hasFragment || ids[target][fragment]):
			case !hasFragment && (page.Has(target) || target == "/openapi.yaml" || target == "/asyncapi.yaml"):
			default:
				t.Errorf("%s links to %s, which does not exist", path, link[1])
			}
		}
	}
}

func TestPages_HeadingsLinkToThemselves(t *testing.T) {
	for path, page := range pages(t) {
		for _, id := range regexp.MustCompile(`<(?:h2|h3|tr) id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if !strings.Contains(page, `<a class="anchor" href="#`+id[1]+`"`) {
				t.Errorf("%s: %s has no link to itself", path, id[1])
			}
		}
		if headings, with := strings.Count(page, "<h2")+strings.Count(page, "<h3"), strings.Count(page, "<h2 id=")+strings.Count(page, "<h3 id="); headings != with {
			t.Errorf("%s: only %d of %d headings have an id", path, with, headings)
		}
		if n := strings.Count(page, "<h1"); n != 1 {
			t.Errorf("%s has %d titles, want 1", path, n)
		}
	}
}

// shownCode matches code on a page. Markup inside the code is escaped.
var shownCode = regexp.MustCompile(`(?s)<code>[^<]*</code>`)

// The page's Content-Security-Policy takes effect only in a browser. So this test looks for markup that the policy forbids.
func TestPages_HaveNoMarkupThatPolicyForbids(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son[a-z]+=|(?:src|href)="(?:[a-z]+:|//|")|ZgotmplZ|%!`)
	for path, page := range pages(t) {
		if found := forbidden.FindString(shownCode.ReplaceAllString(page, "")); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
}

func TestPages_ShowNoMarkdown(t *testing.T) {
	for path, page := range pages(t) {
		text := shownCode.ReplaceAllString(page, "")
		for _, mark := range []string{"`", "**", "\n* ", "\n- ", "](", "| ---"} {
			if i := strings.Index(text, mark); i >= 0 {
				t.Errorf("%s shows %q: %q", path, mark, text[max(0, i-60):min(len(text), i+60)])
			}
		}
	}
}

func TestReference_ShowsBothDocuments(t *testing.T) {
	ids := idsOf(t, referencePath, pages(t)[referencePath])
	api, err := parseDocument(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := parseDocument(asyncAPI)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"errors", "close-codes", "guides", "the-ai-sdks-protocol"}
	api.object("paths").each(func(_ string, item object) {
		item.each(func(_ string, operation object) { want = append(want, operation.text("operationId")) })
	})
	api.object("components", "schemas").each(func(name string, _ object) { want = append(want, name) })
	stream.object("components", "schemas").each(func(name string, _ object) { want = append(want, framePrefix+name) })
	stream.object("components", "messages").each(func(name string, _ object) { want = append(want, "frame."+name) })
	for _, id := range want {
		if !ids[id] {
			t.Errorf("the reference has no element with the id %s", id)
		}
	}
	if len(want) < 150 {
		t.Errorf("only %d operations, schemas, frames and sections, want at least 150", len(want))
	}
}

func TestPages_LinkToEveryGuide(t *testing.T) {
	all := pages(t)
	for path, page := range all {
		for _, guide := range slices.Sorted(maps.Keys(all)) {
			if !strings.Contains(page, `href="`+guide+`"`) {
				t.Errorf("%s has no link to %s", path, guide)
			}
		}
	}
}
