package web

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler(Options{}).ServeHTTP(w, r)
	return w
}

func TestHandler_EachFile_TypeAndSecurityHeaders(t *testing.T) {
	want := map[string]string{
		"/":                                      "text/html; charset=utf-8",
		"/static/client.js":                      "text/javascript; charset=utf-8",
		"/static/connection.js":                  "text/javascript; charset=utf-8",
		"/static/track.js":                       "text/javascript; charset=utf-8",
		"/static/page.js":                        "text/javascript; charset=utf-8",
		"/static/chip.js":                        "text/javascript; charset=utf-8",
		"/static/composer.js":                    "text/javascript; charset=utf-8",
		"/static/menus.js":                       "text/javascript; charset=utf-8",
		"/static/problem.js":                     "text/javascript; charset=utf-8",
		"/static/log.js":                         "text/javascript; charset=utf-8",
		"/static/words.js":                       "text/javascript; charset=utf-8",
		"/static/sessions.js":                    "text/javascript; charset=utf-8",
		"/static/usage.js":                       "text/javascript; charset=utf-8",
		"/static/sidebar.css":                    "text/css; charset=utf-8",
		"/static/traffic.js":                     "text/javascript; charset=utf-8",
		"/static/tools.js":                       "text/javascript; charset=utf-8",
		"/static/simulator.js":                   "text/javascript; charset=utf-8",
		"/static/inspector.js":                   "text/javascript; charset=utf-8",
		"/static/snippets.js":                    "text/javascript; charset=utf-8",
		"/static/element.js":                     "text/javascript; charset=utf-8",
		"/static/inspector.css":                  "text/css; charset=utf-8",
		"/static/client.d.ts":                    "text/plain; charset=utf-8",
		"/static/style.css":                      "text/css; charset=utf-8",
		"/static/docs.css":                       "text/css; charset=utf-8",
		"/static/icon.svg":                       "image/svg+xml",
		"/static/client.js?v=now":                "text/javascript; charset=utf-8",
		"/static/markdown.js":                    "text/javascript; charset=utf-8",
		"/static/markdown.css":                   "text/css; charset=utf-8",
		"/static/lib/versions.json":              "application/json",
		"/static/lib/streaming-markdown/license": "text/plain; charset=utf-8",
		"/static/lib/@speed-highlight/core/dist/tokenize.js": "text/javascript; charset=utf-8",
	}
	for target, contentType := range want {
		w := get(t, "GET", target)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != contentType || w.Body.Len() == 0 {
			t.Errorf("%s: status %d, type %q, %d bytes; want a file of type %q", target, w.Code, w.Header().Get("Content-Type"), w.Body.Len(), contentType)
		}
		for name, value := range map[string]string{
			"Content-Security-Policy": ContentSecurityPolicy,
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "no-referrer",
			"Cache-Control":           "no-cache",

			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", target, name, got, value)
			}
		}
	}
}

func TestHandler_EveryFileHasType(t *testing.T) {
	forEachFile(t, func(name, _ string) {
		if types[path.Ext(name)] == "" {
			t.Errorf("%s has no content type", name)
		}
	})
}

func TestHandler_MatchingETag_NotModified(t *testing.T) {
	etag := get(t, "GET", "/").Header().Get("ETag")
	if w := get(t, "GET", "/", "If-None-Match", etag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with the ETag of the page: status %d, %d bytes, want 304 without a body", w.Code, w.Body.Len())
	}
	if w := get(t, "GET", "/", "If-None-Match", `"another"`); w.Code != http.StatusOK {
		t.Errorf("with another ETag: status %d, want 200", w.Code)
	}
	if other := get(t, "GET", "/static/page.js").Header().Get("ETag"); other == etag || other == "" {
		t.Errorf("two files have the ETags %q and %q, want different ones", etag, other)
	}
}

func TestHandler_NeitherGetNorHead_NotAllowed(t *testing.T) {
	if w := get(t, "HEAD", "/"); w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: status %d, %d bytes, Content-Length %q", w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if w := get(t, method, "/"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, Allow %q, want 405 with \"GET, HEAD\"", method, w.Code, w.Header().Get("Allow"))
		}
	}
}

func TestHandler_SimulatedModelWhileServing_MarkedInPage(t *testing.T) {
	simulated := false
	handler := Handler(Options{Simulated: func() bool { return simulated }})
	etags := make(map[string]bool)
	for _, simulated = range []bool{false, true, false} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if marked := strings.Contains(w.Body.String(), `<html data-model="simulated" lang="en">`); marked != simulated {
			t.Errorf("while the model is simulated: %v, the page has the attribute data-model: %v", simulated, marked)
		}
		etags[w.Header().Get("ETag")] = true
	}
	if len(etags) != 2 {
		t.Errorf("the page has the ETags %v, want one for each form", etags)
	}
}

func TestHandler_UnknownPath_NotFound(t *testing.T) {
	for _, target := range []string{
		"/index.html", "/static", "/static/", "/static/index.html", "/static/missing.js", "/static/../web.go", "/web.go",
		"/static//page.js", "/favicon.ico",
	} {
		w := get(t, "GET", target)
		if w.Code != http.StatusNotFound || w.Header().Get("ETag") != "" || w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: status %d, ETag %q, want 404 with a content security policy", target, w.Code, w.Header().Get("ETag"))
		}
	}
}

// TestPage_HasNoMarkupThatPolicyForbids searches index.html for markup that the content security policy forbids, and for
// references to missing files. It needs no browser.
func TestPage_HasNoMarkupThatPolicyForbids(t *testing.T) {
	document := get(t, "GET", "/").Body.String()
	for what, pattern := range map[string]string{
		"an inline script":        `(?i)<script(?:\s[^>]*)?>[^<]*\S[^<]*</script>`,
		"a script without a file": `(?i)<script(?:\s+type="module")?\s*>`,
		"an inline style":         `(?i)<style|\sstyle\s*=`,
		"an event handler":        `(?i)\son[a-z]+\s*=`,
		"an external address":     `(?i)(?:src|href|action)\s*=\s*"(?:[a-z]+:|//)`,
		"an unquoted attribute":   `(?i)(?:src|href)\s*=[^"]`,
		"a form with an action":   `(?i)<form[^>]*\saction`,
	} {
		if found := regexp.MustCompile(pattern).FindString(document); found != "" {
			t.Errorf("index.html has %s: %s", what, found)
		}
	}
	for _, match := range regexp.MustCompile(`(?:src|href)="(/static/[^"]*)"`).FindAllStringSubmatch(document, -1) {
		if w := get(t, "GET", match[1]); w.Code != http.StatusOK {
			t.Errorf("index.html refers to %s: status %d", match[1], w.Code)
		}
	}
}

func TestFiles_NoExternalAddressOrMarkup(t *testing.T) {
	comment := regexp.MustCompile(`(?m)(?:^|\s)//.*$|/\*(?s:.*?)\*/`)
	external := regexp.MustCompile(`(?:https?:)?//[a-z0-9]|@import|\burl\(["']?[^)]`)
	patterns := map[string]string{ // parts of the highlighter's regular expressions, which a browser does not load
		"lib/@speed-highlight/core/dist/languages/css.js":  "url(?",
		"lib/@speed-highlight/core/dist/languages/http.js": "@import",
	}
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|setAttribute\("(?:style|on)`)
	forEachFile(t, func(name, content string) {
		if strings.HasPrefix(name, libraryFolder) && !strings.HasSuffix(name, ".js") {
			return // licences and versions.json, which a browser does not load
		}
		code := comment.ReplaceAllString(content, "")
		code = strings.ReplaceAll(code, `"http://www.w3.org/2000/svg"`, "") // an XML namespace; browsers do not request it
		if strings.HasSuffix(name, ".d.ts") {
			return // not loaded; it shows addresses as examples
		}
		if strings.HasPrefix(name, libraryFolder) {
			code = content // minified: a text that looks like a comment may be a regular expression
		}
		if found := external.FindString(code); found != "" && found != patterns[name] {
			t.Errorf("%s has an external address: %s", name, found)
		}
		if found := markup.FindString(code); found != "" {
			t.Errorf("%s makes markup from strings: %s", name, found)
		}
	})
}

// TestDoc_ListsAllModules checks that the package comment names every script in static.
func TestDoc_ListsAllModules(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	forEachFile(t, func(name, _ string) {
		if path.Ext(name) == ".js" && !strings.HasPrefix(name, libraryFolder) && !strings.Contains(string(doc), name) {
			t.Errorf("doc.go does not mention %s", name)
		}
	})
}

// TestDocs_SameColoursAsPage compares docs.css with style.css. docs.css does not import style.css, so that a change of the page
// does not change /docs by accident.
func TestDocs_SameColoursAsPage(t *testing.T) {
	colour := regexp.MustCompile(`(--[a-z-]+): (light-dark\(.*?\));`)
	page := make(map[string]string)
	for _, c := range colour.FindAllStringSubmatch(get(t, "GET", "/static/style.css").Body.String(), -1) {
		page[c[1]] = c[2]
	}
	own := colour.FindAllStringSubmatch(get(t, "GET", "/static/docs.css").Body.String(), -1)
	for _, c := range own {
		if page[c[1]] != c[2] {
			t.Errorf("%s is %s in docs.css but %s in style.css", c[1], c[2], page[c[1]])
		}
	}
	if len(own) < 5 {
		t.Errorf("docs.css defines %d colours, want at least 5", len(own))
	}
}

func forEachFile(t *testing.T, do func(name, content string)) {
	t.Helper()
	err := fs.WalkDir(Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(Files(), name)
		do(name, string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
