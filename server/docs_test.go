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

func TestDocs_EachPath_ServedWithoutKeyAndCompressed(t *testing.T) {
	p := start(t, echo)
	for path, contentType := range map[string]string{
		"/openapi.yaml": "application/yaml", "/asyncapi.yaml": "application/yaml",
		"/docs": "text/html; charset=utf-8", "/docs/guides/protocol": "text/html; charset=utf-8", "/docs/guides/operation": "text/html; charset=utf-8",
		"/docs/guides/growth-sessions.svg": "image/svg+xml",
	} {
		t.Run(path, func(t *testing.T) {
			plain := p.call("GET", path, nil, "Authorization", "", "Accept-Encoding", "identity")
			if plain.status != 200 || plain.header.Get("Content-Type") != contentType || plain.raw == "" {
				t.Fatalf("%d %v %.40q", plain.status, plain.header, plain.raw)
			}
			if policy := plain.header.Get("Content-Security-Policy"); contentType != "application/yaml" && policy != web.ContentSecurityPolicy {
				t.Errorf("the Content-Security-Policy is %q", policy)
			}
			packed := p.call("GET", path, nil, "Accept-Encoding", "gzip")
			if len(packed.raw) >= len(plain.raw)*2/3 || packed.header.Get("Content-Encoding") != "gzip" || packed.header.Get("Cache-Control") != "no-cache" {
				t.Errorf("gzip: %d of %d bytes, %v", len(packed.raw), len(plain.raw), packed.header)
			}
			if a := p.call("GET", path, nil, "Accept-Encoding", "gzip", "If-None-Match", packed.header.Get("ETag")); a.status != 304 || a.raw != "" {
				t.Errorf("with the ETag in If-None-Match: %d, %d bytes", a.status, len(a.raw))
			}
		})
	}
}

func TestDocs_UnknownGuide_404(t *testing.T) {
	p := start(t, echo)
	for _, path := range []string{"/docs/guides/nothing", "/docs/guides/protocol%2Fx", "/docs/guides/", "/docs/guides"} {
		if a := p.call("GET", path, nil, "Authorization", ""); a.status != 404 || code(a.body) != "not_found" {
			t.Errorf("%s: %d %s", path, a.status, a.raw)
		}
		a := p.call("GET", path, nil, "Accept", "text/html")
		if a.status != 404 || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s in a browser: %d %v", path, a.status, a.header)
		}
	}
}

// The page /docs is generated from openapi.yaml. It must have a heading for each route of the server.
func TestDocs_EveryRoute_HasHeading(t *testing.T) {
	p := start(t, echo)
	a := p.call("GET", "/docs", nil, "Authorization", "")
	for _, r := range server.Routes(p.handler) {
		pattern := regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")
		if heading := "<code>" + r.Method + " " + pattern + "</code> <a "; !strings.Contains(a.raw, heading) {
			t.Errorf("%s %s has no heading", r.Method, pattern)
		}
	}
}

// The page /docs must explain each error code of openapi.yaml, with its statuses, and each close code.
func TestDocs_EveryCode_Explained(t *testing.T) {
	statuses := make(map[string]map[string]bool) // by code
	for described := range describedErrors() {
		status, code, _ := strings.Cut(described, " ")
		if statuses[code] == nil {
			statuses[code] = make(map[string]bool)
		}
		statuses[code][status] = true
	}
	a := start(t, echo).call("GET", "/docs", nil, "Authorization", "")
	explained := make(map[string]bool)
	row := regexp.MustCompile(`<tr id="code-([a-z_]+)">\s*<th scope="row"><code>([a-z_]+)</code>.*?</th><td[^>]*>([0-9, ]+)</td><td[^>]*>(.+?)</td><td[^>]*>(.+?)</td></tr>`)
	for _, r := range row.FindAllStringSubmatch(a.raw, -1) {
		explained[r[1]] = true
		if want := strings.Join(slices.Sorted(maps.Keys(statuses[r[1]])), ", "); r[3] != want || r[1] != r[2] {
			t.Errorf("the error %s has the status %s on /docs, and %q in openapi.yaml", r[1], r[3], want)
		}
	}
	value, _ := documents.at(place{openAPIFile, "/components/schemas/ErrorObject/properties/code/enum"})
	for _, code := range value.([]any) {
		if !explained[code.(string)] {
			t.Errorf("/docs does not explain the error %s", code)
		}
	}
	for _, code := range []wire.CloseCode{
		wire.CloseBinary, wire.CloseInvalidUTF8, wire.CloseInvalidFrames, wire.CloseTooLarge, wire.CloseDraining, wire.CloseUnauthorized,
		wire.CloseTimeout, wire.CloseTooManyConnections,
	} {
		if !strings.Contains(a.raw, fmt.Sprintf("<tr id=\"code-%d\">\n<th scope=\"row\">%d <a ", code, code)) {
			t.Errorf("/docs does not explain the close code %d", code)
		}
	}
}
