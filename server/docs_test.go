package server_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"parley/server"
	"parley/stream/wire"
	"parley/web"
)

func TestTheDocumentsAreServed(t *testing.T) {
	p := start(t, echo)
	for path, begins := range map[string]string{"/openapi.yaml": "openapi: 3.1.", "/asyncapi.yaml": "asyncapi: 3.0."} {
		a := p.call("GET", path, nil, "Authorization", "")
		if a.status != 200 || a.header.Get("Content-Type") != "application/yaml" || !strings.HasPrefix(a.raw, begins) {
			t.Errorf("%s: %d %q %.40q", path, a.status, a.header.Get("Content-Type"), a.raw)
		}
	}
}

func TestTheDocsAreSentInGzipAndOnlyOnce(t *testing.T) {
	p := start(t, echo)
	for _, path := range []string{"/docs", "/openapi.yaml", "/asyncapi.yaml"} {
		plain, packed := p.call("GET", path, nil, "Accept-Encoding", "identity"), p.call("GET", path, nil, "Accept-Encoding", "gzip")
		if len(packed.raw) >= len(plain.raw)/2 || packed.header.Get("Content-Encoding") != "gzip" || packed.header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d bytes of %d, %v", path, len(packed.raw), len(plain.raw), packed.header)
		}
		if a := p.call("GET", path, nil, "Accept-Encoding", "gzip", "If-None-Match", packed.header.Get("ETag")); a.status != 304 || a.raw != "" {
			t.Errorf("%s again: %d, %d bytes", path, a.status, len(a.raw))
		}
	}
}

func TestTheDocsShowEveryOperationSchemaAndFrame(t *testing.T) {
	p := start(t, echo)
	a := p.call("GET", "/docs", nil, "Authorization", "", "Accept-Encoding", "identity")
	if a.status != 200 || a.header.Get("Content-Security-Policy") != web.ContentSecurityPolicy {
		t.Fatalf("%d %v", a.status, a.header)
	}
	for _, r := range server.Routes(p.handler) {
		pattern := regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")
		if heading := "<code>" + r.Method + " " + pattern + "</code> <a "; !strings.Contains(a.raw, heading) {
			t.Errorf("%s %s has no heading", r.Method, pattern)
		}
	}
	ids := make(map[string]bool)
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(a.raw, -1) {
		if ids[id[1]] {
			t.Errorf("the id %q is there twice", id[1])
		}
		ids[id[1]] = true
	}
	for _, link := range regexp.MustCompile(` href="#([^"]*)"`).FindAllStringSubmatch(a.raw, -1) {
		if !ids[link[1]] {
			t.Errorf("a link goes to #%s, which is not there", link[1])
		}
	}
	for _, id := range []string{"Message", "ErrorObject", "frame-MessageDelta", "frame.message.delta", "frame.ai-sdk.chunk", "frame-AiSdkTextDelta", "sendMessage", "openStream", "errors", "close-codes"} {
		if !ids[id] {
			t.Errorf("%s is not shown", id)
		}
	}
	for _, id := range regexp.MustCompile(`<(?:h2|h3|tr) id="([^"]*)"`).FindAllStringSubmatch(a.raw, -1) {
		if !strings.Contains(a.raw, `<a class="anchor" href="#`+id[1]+`"`) {
			t.Errorf("%s has no link of its own", id[1])
		}
	}
	if headings, with := strings.Count(a.raw, "<h3"), strings.Count(a.raw, "<h3 id="); headings != with {
		t.Errorf("%d of %d headings have an id", with, headings)
	}
	// What the page's policy forbids would fail in the browser only.
	if found := regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son[a-z]+=|(?:src|href)="(?:[a-z]+:|//)|ZgotmplZ|%!`).FindString(a.raw); found != "" {
		t.Errorf("the page has %q", found)
	}
}

// TestEveryCodeIsExplained compares the tables of errors and of close codes with what the service can answer.
func TestEveryCodeIsExplained(t *testing.T) {
	statuses := make(map[string]map[string]bool) // of each code
	for described := range describedErrors() {
		status, code, _ := strings.Cut(described, " ")
		if statuses[code] == nil {
			statuses[code] = make(map[string]bool)
		}
		statuses[code][status] = true
	}
	a := start(t, echo).call("GET", "/docs", nil, "Authorization", "")
	explained := make(map[string]bool)
	row := regexp.MustCompile(`<tr id="code-([a-z_]+)"><th scope="row"><code>([a-z_]+)</code>.*?</th><td>([0-9, ]+)</td><td>(.+?)</td><td>(.+?)</td></tr>`)
	for _, r := range row.FindAllStringSubmatch(a.raw, -1) {
		explained[r[1]] = true
		if want := strings.Join(slices.Sorted(maps.Keys(statuses[r[1]])), ", "); r[3] != want || r[1] != r[2] {
			t.Errorf("%s is said to be %s, it is %q", r[1], r[3], want)
		}
	}
	value, _ := documents.at(place{openAPIFile, "/components/schemas/ErrorObject/properties/code/enum"})
	for _, code := range value.([]any) {
		if !explained[code.(string)] {
			t.Errorf("%s is not explained", code)
		}
	}
	for _, code := range []wire.CloseCode{
		wire.CloseBinary, wire.CloseInvalidUTF8, wire.CloseInvalidFrames, wire.CloseTooLarge, wire.CloseDraining, wire.CloseUnauthorized,
		wire.CloseNoHeartbeat, wire.CloseTooManyConnections,
	} {
		if !strings.Contains(a.raw, fmt.Sprintf(`<tr id="code-%d"><th scope="row">%d <a `, code, code)) {
			t.Errorf("the close code %d is not explained", code)
		}
	}
}
