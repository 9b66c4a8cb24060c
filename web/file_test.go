package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestAcceptsGzip_ComparesWeightsOfGzipAndPlain(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                false,
		"gzip":                            true,
		"x-gzip":                          true,
		"GZip":                            true,
		"gzip, deflate, br, zstd":         true,
		"deflate,br;q=1.0, gzip;q=0.5":    true,
		"deflate, br":                     false,
		"*":                               true,
		"*;q=0":                           false,
		"*, gzip;q=0":                     false,
		"*;q=0, gzip":                     true,
		"gzip;q=0":                        false,
		"gzip ; Q=0.000":                  false,
		"gzip;q=0.001":                    true,
		"identity":                        false,
		"identity, gzip":                  true,
		"identity;q=1, gzip;q=0.9":        false,
		"identity;q=0.5, gzip;q=1.0":      true,
		"identity;q=0, gzip;q=0":          false,
		"gzip;q=invalid":                  false,
		"gzip;q=NaN":                      false,
		"gzip;q=2":                        false,
		"gzip;level=9":                    false,
		"gzipped, notgzip, gzip-not;q=1 ": false,
		",,;;=,gzip":                      true,
	} {
		if got := acceptsGzip([]string{accept}); got != want {
			t.Errorf("Accept-Encoding %q: accepts gzip is %v, want %v", accept, got, want)
		}
	}
	if !acceptsGzip([]string{"br", "gzip"}) || acceptsGzip([]string{"gzip", "gzip;q=0"}) || acceptsGzip(nil) {
		t.Error("several Accept-Encoding headers are not combined")
	}
}

func TestFile_GzipAndPlain_DifferentETags(t *testing.T) {
	const target = "/static/client.js"
	plain, packed := get(t, "GET", target), get(t, "GET", target, "Accept-Encoding", "gzip")
	reader, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(unpacked, plain.Body.Bytes()) {
		t.Errorf("the gzip content has %d bytes after decompression, want %d: %v", len(unpacked), plain.Body.Len(), err)
	}
	if e := packed.Header().Get("Content-Encoding"); e != "gzip" || plain.Header().Get("Content-Encoding") != "" {
		t.Errorf("Content-Encoding is %q with gzip and %q without, want gzip and none", e, plain.Header().Get("Content-Encoding"))
	}
	gzipTag, plainTag := packed.Header().Get("ETag"), plain.Header().Get("ETag")
	if gzipTag == plainTag || gzipTag == "" {
		t.Errorf("the ETags are %s with gzip and %s without, want two different ones", gzipTag, plainTag)
	}
	for name, c := range map[string]struct {
		method, accept, match string
		status                int
	}{
		"gzip, ETag of gzip":           {"GET", "gzip", gzipTag, 304},
		"gzip, two ETags, one of gzip": {"GET", "gzip", `"x", ` + gzipTag, 304},
		"gzip, ETag of plain":          {"GET", "gzip", plainTag, 200},
		"plain, ETag of gzip":          {"GET", "identity", gzipTag, 200},
		"plain, ETag of plain":         {"GET", "identity", plainTag, 304},
		"HEAD for gzip, ETag of plain": {"HEAD", "gzip", plainTag, 200},
		"HEAD for gzip, ETag of gzip":  {"HEAD", "gzip", gzipTag, 304},
	} {
		w := get(t, c.method, target, "Accept-Encoding", c.accept, "If-None-Match", c.match)
		if w.Code != c.status || w.Header().Get("Vary") != "Accept-Encoding" || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: status %d, headers %v, want status %d", name, w.Code, w.Header(), c.status)
		}
		if empty := w.Body.Len() == 0; empty != (c.status == 304 || c.method == "HEAD") {
			t.Errorf("%s: the body has %d bytes", name, w.Body.Len())
		}
	}
	part := get(t, "GET", target, "Accept-Encoding", "gzip", "Range", "bytes=3-12")
	if part.Code != http.StatusPartialContent || part.Body.String() != plain.Body.String()[3:13] || part.Header().Get("Content-Encoding") != "" {
		t.Errorf("range: status %d, body %q, headers %v", part.Code, part.Body, part.Header())
	}
	if w := get(t, "GET", target, "Accept-Encoding", "gzip", "Range", "bytes=0-1", "If-Range", gzipTag); w.Code != http.StatusOK || w.Body.Len() != plain.Body.Len() {
		t.Errorf("range with the ETag of gzip in If-Range: status %d, %d bytes, want the whole file", w.Code, w.Body.Len())
	}
}

func TestFile_GzipWouldBeLarger_ServedPlain(t *testing.T) {
	if packed := NewFile("text/plain", []byte("short")).gzipped(); packed != nil {
		t.Errorf("compressed to %d bytes, want no compression", len(packed))
	}
}

// firstLoad is the budget for the page and all files that it loads before the user does anything, in bytes after compression.
// 60,000 bytes take about a second over a slow mobile connection (0.5 Mbit/s).
const firstLoad = 60_000

func TestPage_FirstLoad_WithinBudget(t *testing.T) {
	loaded := map[string]int{}
	load(t, "/", loaded)
	total := 0
	for _, target := range slices.Sorted(maps.Keys(loaded)) {
		t.Logf("%6d %s", loaded[target], target)
		total += loaded[target]
	}
	t.Logf("%6d bytes in %d files, of %d", total, len(loaded), firstLoad)
	if total > firstLoad || len(loaded) < 5 {
		t.Errorf("the first load takes %d bytes in %d files, want at most %d bytes", total, len(loaded), firstLoad)
	}
}

// load adds the compressed size of target to loaded, and the sizes of all files that a browser loads because of target.
func load(t *testing.T, target string, loaded map[string]int) {
	t.Helper()
	if _, seen := loaded[target]; seen {
		return
	}
	plain, sent := get(t, "GET", target), get(t, "GET", target, "Accept-Encoding", "gzip")
	if plain.Code != http.StatusOK {
		t.Errorf("%s: status %d", target, plain.Code)
	}
	loaded[target] = sent.Body.Len()
	for _, next := range loads(target, plain.Header().Get("Content-Type"), plain.Body.String()) {
		load(t, next, loaded)
	}
}

var (
	elements = regexp.MustCompile(`(?is)<!--.*?-->|<(?:link|script|img|source|iframe|object)\b[^>]*?\s(?:href|src|data)\s*=\s*["']([^"']*)["']`)
	comments = regexp.MustCompile(`(?m)(?:^|\s)//.*$|/\*(?s:.*?)\*/`)
	imports  = regexp.MustCompile(`(?:^|[;}\s])(?:import|export)\b(?:[^;'"()=]*?\bfrom)?\s*["']([^"']+)["']`)
	urls     = regexp.MustCompile(`url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)`)
)

// loads returns the paths of the files that a browser loads as soon as it has read content. HTML names them in elements, a script
// in static imports, and a style sheet in imports and URLs.
func loads(target, contentType, content string) (all []string) {
	kind := map[string]*regexp.Regexp{"text/html": elements, "text/javascript": imports, "text/css": urls}[strings.Split(contentType, ";")[0]]
	if kind == nil {
		return nil
	}
	if kind != elements {
		content = comments.ReplaceAllString(content, "")
	}
	for _, found := range kind.FindAllStringSubmatch(content, -1) {
		next := strings.Join(found[1:], "")
		if next == "" || strings.HasPrefix(next, "data:") {
			continue
		}
		if !strings.HasPrefix(next, "/") {
			next = path.Join(path.Dir(target), next)
		}
		all = append(all, next)
	}
	return all
}

func TestLoads_FindsImportsAndLinks(t *testing.T) {
	script := `// import { x } from "./comment.js";
/* import "./block.js" */
import { a } from "./a.js";
import d, {
  e as f,
} from "../lib/d.js";
import*as g from"/static/g.js";import"./side.js";export{h}from'./h.js';
export const text = "from"; const later = () => import("./later.js");
export default function from() { return "./no.js"; }
const sheet = await import(/* when needed */ "./later2.js");`
	for name, c := range map[string]struct {
		target, contentType, content string
		want                         []string
	}{
		"a script": {"/static/app/page.js", "text/javascript; charset=utf-8", script, []string{
			"/static/app/a.js", "/static/lib/d.js", "/static/g.js", "/static/app/side.js", "/static/app/h.js",
		}},
		"a document": {"/", "text/html; charset=utf-8", `<!-- <script src="/static/no.js"></script> --><link rel="modulepreload" href="/static/a.js">
<a href="/static/no.js">x</a><script type="module"
 src="/static/b.js"></script><img alt="" src='static/c.svg'>`, []string{"/static/a.js", "/static/b.js", "/static/c.svg"}},
		"a style sheet": {"/static/s.css", "text/css; charset=utf-8", `@import "a.css"; p { background: url(b.svg) } /* url(no.svg) */`, []string{"/static/a.css", "/static/b.svg"}},
		"a picture":     {"/static/s.svg", "image/svg+xml", `<img src="/static/no.js">`, nil},
	} {
		if got := loads(c.target, c.contentType, c.content); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
