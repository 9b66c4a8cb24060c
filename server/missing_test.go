package server_test

import (
	"strings"
	"testing"

	"parley/conversation/service"
	"parley/server"
	"parley/web"
)

// An unknown path gets a 404 with the usual error body. Outside /v1, a browser gets a page instead.
func TestUnknownPath_404(t *testing.T) {
	p := start(t, echo, func(o *server.Options, _ *service.Options) { o.Page = web.Handler(web.Options{}) })
	session := p.session()
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	bad := refusals{}
	for _, path := range []string{"/nothing", "/static/nothing.js", "/static", "/static%2Fclient.js", "/%2F", "/V1/sessions", "/v1/nothing", "/docs/"} {
		bad["404_"+path] = refused{"GET", path, nil, nil, 404, "not_found", ""}
		bad["404_any_type_"+path] = refused{"GET", path, nil, []string{"Accept", "*/*"}, 404, "not_found", ""}
	}
	bad["404_browser_under_v1"] = refused{"GET", "/v1/nothing", nil, []string{"Accept", browser}, 404, "not_found", ""}
	bad["405_post_to_the_page"] = refused{"POST", "/", "{}", nil, 405, "method_not_allowed", ""}
	bad["405_delete_of_a_file"] = refused{"DELETE", "/static/client.js", nil, nil, 405, "method_not_allowed", ""}
	bad.run(t, p, session)
	t.Run("404_page_for_a_browser", func(t *testing.T) {
		a := p.call("GET", "/no<b>where?x=<i>", nil, "Accept", browser)
		if a.status != 404 || a.header.Get("Content-Type") != "text/html; charset=utf-8" || a.header.Get("Vary") != "Accept" ||
			!strings.Contains(a.raw, `href="/"`) || !strings.Contains(a.raw, `href="/docs"`) || strings.Contains(a.raw, "where") || strings.Contains(a.raw, "<i>") {
			t.Errorf("%d %v %s", a.status, a.header, a.raw)
		}
	})
	t.Run("200_the_page", func(t *testing.T) {
		for _, path := range []string{"/", "/static/client.js"} {
			if a := p.call("GET", path, nil, "Authorization", ""); a.status != 200 || a.raw == "" {
				t.Errorf("%s: %d %s", path, a.status, a.raw)
			}
		}
	})
}
