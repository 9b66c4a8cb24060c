package openai

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDetect_AcceptsOnlyListsOfChatModels(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
	for name, test := range map[string]struct {
		wire  string // the server's response
		model string // the model that Detect must return; "" if it must find no server
	}{
		"Ollama":    {wire(load(t, "ollama/01-models.txt")), "stories:latest"},
		"llama.cpp": {wire(load(t, "llama-server/01-models.txt")), "stories"},
		"embedding model first, then a chat model": {head + `{"object":"list","data":[{"id":"nomic-embed-text","object":"model"},{"id":"llama3","object":"model"}]}`, "llama3"},
		"no models":                   {head + `{"object":"list","data":null}`, ""},
		"only an embedding model":     {head + `{"object":"list","data":[{"id":"nomic-embed-text","object":"model"}]}`, ""},
		"list without objects":        {head + `{"data":[{"id":"42","name":"Ford"}]}`, ""},
		"list of other objects":       {head + `{"object":"list","data":[{"id":"42","object":"car"}]}`, ""},
		"page instead of a list":      {head + `{"object":"page","data":[{"id":"a","object":"model"}]}`, ""},
		"id is a number":              {head + `{"object":"list","data":[{"id":42,"object":"model"}]}`, ""},
		"empty id":                    {head + `{"object":"list","data":[{"id":"","object":"model"}]}`, ""},
		"control character in the id": {head + `{"object":"list","data":[{"id":"a\nb","object":"model"}]}`, ""},
		"content type text/html":      {strings.Replace(head, "application/json", "text/html", 1) + `{"object":"list","data":[{"id":"a","object":"model"}]}`, ""},
		"HTML page":                   {head + "<html>", ""},
		"status 401":                  {strings.Replace(head, "200 OK", "401 Unauthorized", 1) + `{"object":"list","data":[{"id":"a","object":"model"}]}`, ""},
		"redirect":                    {"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", ""},
		"not HTTP":                    {"SSH-2.0-OpenSSH_9.6\r\n", ""},
		"list over 4 MiB":             {head + strings.Repeat(" ", maxModelList) + `{"object":"list","data":[{"id":"a","object":"model"}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
				if r.Method != "GET" || r.URL.Path != "/v1/models" {
					t.Errorf("got the request %s %s, want GET /v1/models", r.Method, r.URL)
				}
				_, _ = io.WriteString(w, test.wire)
			})
			baseURL, model, ok := detect(context.Background(), context.WithCancel, []string{server.url()})
			if ok != (test.model != "") || model != test.model || ok && baseURL != server.url() {
				t.Errorf("got %q, %q, %v; want the model %q", baseURL, model, ok, test.model)
			}
		})
	}
}

func wire(c capture) string { return c.head + string(c.body) }

func TestDetect_SeveralServers_ReturnsFirstThatResponds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()              // after this, no server listens at the address
	var giveUp context.CancelFunc // ends the current request
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		giveUp()
		<-r.Context().Done()
	}))
	defer hanging.Close()
	there := serveRaw(t, func(_ int, w net.Conn, _ *http.Request) {
		_, _ = io.WriteString(w, wire(load(t, "ollama/01-models.txt")))
	})
	bound := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, giveUp = context.WithCancel(ctx)
		return ctx, giveUp
	}
	baseURL, model, ok := detect(context.Background(), bound, []string{"http://" + listener.Addr().String() + "/v1", hanging.URL + "/v1", there.url()})
	if !ok || baseURL != there.url() || model != "stories:latest" {
		t.Errorf("got %q, %q, %v; want the third server", baseURL, model, ok)
	}
	ctx, cancel := withDetectTimeout(context.Background())
	defer cancel()
	if _, bounded := ctx.Deadline(); !bounded {
		t.Error("the context for the request to a server has no deadline")
	}
}
