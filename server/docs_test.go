package server_test

import (
	"regexp"
	"strings"
	"testing"

	"parley/server"
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

func TestTheDocsShowEveryOperationSchemaAndFrame(t *testing.T) {
	p := start(t, echo)
	a := p.call("GET", "/docs", nil, "Authorization", "")
	if a.status != 200 || a.header.Get("Content-Security-Policy") != web.ContentSecurityPolicy {
		t.Fatalf("%d %v", a.status, a.header)
	}
	for _, r := range server.Routes(p.handler) {
		pattern := regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")
		if heading := "<code>" + r.Method + " " + pattern + "</code></h3>"; !strings.Contains(a.raw, heading) {
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
	for _, id := range []string{"Message", "ErrorObject", "frame-MessageDelta", "frame.message.delta", "frame.ai-sdk.chunk", "frame-AiSdkTextDelta", "sendMessage", "openStream"} {
		if !ids[id] {
			t.Errorf("%s is not shown", id)
		}
	}
	// What the page's policy forbids would fail in the browser only.
	if found := regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son[a-z]+=|(?:src|href)="(?:[a-z]+:|//)|ZgotmplZ|%!`).FindString(a.raw); found != "" {
		t.Errorf("the page has %q", found)
	}
}
