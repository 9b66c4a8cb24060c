package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// responses maps a method and path, such as "GET /v1/models", to a response: a status and a JSON body.
type responses map[string]struct {
	status int
	body   string
}

// serveJSON starts a model server with fixed responses. Any other request gets 404 in plain text, as from Ollama.
func serveJSON(t *testing.T, known responses) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, ok := known[r.Method+" "+r.URL.EscapedPath()]
		if !ok {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(found.status)
		_, _ = io.WriteString(w, found.body)
	}))
	t.Cleanup(server.Close)
	return server
}

// body returns the body of a captured response.
func body(t *testing.T, name string) string { return strings.TrimSpace(string(load(t, name).body)) }

func TestProbe_EachServer_FindsModelOrProblem(t *testing.T) {
	llama, ollama := body(t, "llama-server/01-models.txt"), body(t, "ollama/01-models.txt")
	list := func(models string) string { return `{"object":"list","data":[` + models + `]}` }
	const invalid = `{"error":{"message":"missing messages","type":"invalid_request_error","param":null,"code":null}}`
	for name, test := range map[string]struct {
		base  string // path of the base URL
		model string // the configured name
		known responses
		want  Found
		err   error
	}{
		"llama.cpp, no name":             {"/v1", "", responses{"GET /v1/models": {200, llama}}, Found{"stories", 512, Listed}, nil},
		"llama.cpp, which ignores names": {"/v1", "other", responses{"GET /v1/models": {200, llama}}, Found{"other", 512, Listed}, nil},
		"llama.cpp while it loads":       {"/v1", "", responses{"GET /v1/models": {503, `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`}}, Found{}, ServerError},
		"size from llama.cpp's /props": {"/v1", "", responses{
			"GET /v1/models": {200, list(`{"id":"a","object":"model","owned_by":"llamacpp"}`)},
			"GET /props":     {200, `{"default_generation_settings":{"id":0,"n_ctx":4096},"total_slots":1}`},
		}, Found{"a", 4096, Props}, nil},
		"Ollama, no name": {"/v1", "", responses{"GET /v1/models": {200, ollama}}, Found{"stories:latest", 0, ""}, nil},
		"Ollama, name without a tag, trained size": {"/v1", "stories", responses{
			"GET /v1/models": {200, ollama}, "POST /api/show": {200, `{"parameters":"stop \"x\"","model_info":{"general.architecture":"llama","llama.context_length":2048}}`},
		}, Found{"stories", 2048, Show}, nil},
		"Ollama, size in the parameters": {"/v1", "stories", responses{
			"GET /v1/models": {200, ollama}, "POST /api/show": {200, `{"parameters":"stop \"x\"\nnum_ctx                        512\ntop_k 1","model_info":{"llama.context_length":2048}}`},
		}, Found{"stories", 512, Show}, nil},
		"Ollama, unknown model": {"/v1", "nope", responses{"GET /v1/models": {200, ollama}}, Found{}, UnknownModel},
		"vLLM":                  {"/v1", "a/b", responses{"GET /v1/models": {200, list(`{"id":"a/b","object":"model","owned_by":"vllm","max_model_len":32768,"permission":[]}`)}}, Found{"a/b", 32768, Listed}, nil},
		"OpenRouter":            {"/api/v1", "x/y", responses{"GET /api/v1/models": {200, `{"data":[{"id":"x/y","context_length":131072}]}`}}, Found{"x/y", 131072, Listed}, nil},
		"bare array":            {"/v1", "a", responses{"GET /v1/models": {200, `[{"id":"a","object":"model","meta":["other"],"context_length":"big"}]`}}, Found{"a", 0, ""}, nil},
		"size out of range":     {"/v1", "a", responses{"GET /v1/models": {200, list(`{"id":"a","max_model_len":1e9,"context_length":-4}`)}}, Found{"a", 0, ""}, nil},
		"model that is not in the list": {"/v1", "ft:a", responses{
			"GET /v1/models": {200, list(`{"id":"b"}`)}, "GET /v1/models/ft:a": {200, `{"id":"ft:a","object":"model","context_length":9000}`},
		}, Found{"ft:a", 9000, Listed}, nil},
		"only an embedding model":          {"/v1", "", responses{"GET /v1/models": {200, list(`{"id":"nomic-embed-text"}`)}}, Found{}, NoChatModel},
		"no model yet (Ollama)":            {"/v1", "", responses{"GET /v1/models": {200, `{"object":"list","data":null}`}}, Found{}, NoChatModel},
		"wrong key":                        {"/v1", "a", responses{"GET /v1/models": {401, `{"error":{"message":"sk-secret-key is wrong"}}`}}, Found{}, WrongKey},
		"base URL without /v1":             {"", "a", responses{"GET /v1/models": {200, list(`{"id":"a"}`)}}, Found{}, MissingVersion},
		"base URL without /v1, wrong key":  {"/", "a", responses{"GET /v1/models": {401, `{}`}}, Found{}, MissingVersion},
		"server without a list":            {"/v1", "a", responses{"POST /v1/chat/completions": {400, invalid}}, Found{"a", 0, ""}, nil},
		"server without a list, no name":   {"/v1", "", responses{"POST /v1/chat/completions": {400, invalid}}, Found{}, NoChatModel},
		"server without a list, wrong key": {"/v1", "a", responses{"POST /v1/chat/completions": {401, invalid}}, Found{}, WrongKey},
		"JSON API of another kind":         {"/v1", "a", responses{"GET /v1/models": {200, `{"models":[]}`}, "POST /v1/chat/completions": {200, `{}`}}, Found{}, NotAnAPI},
		"website":                          {"", "", responses{}, Found{}, NotAnAPI},
		"overloaded":                       {"/v1", "a", responses{"GET /v1/models": {429, `{}`}}, Found{}, ErrRateLimited},
		"overloaded without a list":        {"/v1", "a", responses{"POST /v1/chat/completions": {429, invalid}}, Found{}, ErrRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveJSON(t, test.known)
			found, err := Probe(context.Background(), Options{BaseURL: server.URL + test.base, Key: "sk-secret-key", Name: test.model}, true)
			if found != test.want || err != test.err {
				t.Errorf("got %+v, %v; want %+v, %v", found, err, test.want, test.err)
			}
		})
	}
}

func TestProbe_NoLearning_AsksOnlyForList(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"a","object":"model"}]}`)
	}))
	defer server.Close()
	if _, err := Probe(context.Background(), Options{BaseURL: server.URL + "/v1/", Key: "sk-secret-key"}, false); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/v1/models Bearer sk-secret-key"}; !slices.Equal(asked, want) {
		t.Errorf("the requests are %q, want %q", asked, want)
	}
}

func TestProbe_NoResponse_NamesProblem(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close() // after this, no server listens at the address
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it would get the failed handshake
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	breaking := serveRaw(t, func(int, net.Conn, *http.Request) {})
	other := serveRaw(t, func(_ int, w net.Conn, _ *http.Request) { _, _ = io.WriteString(w, "SSH-2.0-OpenSSH_9.6\r\n") })
	for name, test := range map[string]struct {
		base string
		want Problem
	}{
		"nothing listens":             {"http://" + closed.Addr().String() + "/v1", ConnectionRefused},
		"certificate not trusted":     {secure.URL + "/v1", Untrusted},
		"https:// without TLS":        {strings.Replace(plain.URL, "http:", "https:", 1) + "/v1", Untrusted},
		"connection closed":           {breaking.url(), Broken},
		"program that speaks no HTTP": {other.url(), Broken},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Probe(context.Background(), Options{BaseURL: test.base, Name: "a"}, true); err != test.want {
				t.Errorf("got the error %v, want %v", err, test.want)
			}
		})
	}
	if got := problemOf(fmt.Errorf("dial: %w", &net.DNSError{Err: "no such host", Name: "secret", IsNotFound: true})); got != UnknownHost {
		t.Errorf("for an unknown host: got %v, want %v", got, UnknownHost)
	}
}

func TestProbe_SilentServer_TimesOutOrStops(t *testing.T) {
	arrived := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	late, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := Probe(late, Options{BaseURL: server.URL + "/v1"}, true); err != Silent {
		t.Errorf("after the timeout: got the error %v, want %v", err, Silent)
	}
	stopped, stop := context.WithCancel(context.Background())
	go func() {
		<-arrived
		stop()
	}()
	if _, err := Probe(stopped, Options{BaseURL: server.URL + "/v1"}, true); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: got the error %v, want %v", err, context.Canceled)
	}
}

func TestProblems_EachProblem_HasMeaningAndAdvice(t *testing.T) {
	all := Problems()
	if len(all) != 11 {
		t.Errorf("there are %d problems, want 11", len(all))
	}
	for _, p := range all {
		if p.Meaning() == "" || p.Advice() == "" || strings.HasSuffix(p.Meaning(), ".") || fmt.Sprint(p) != p.Meaning() {
			t.Errorf("%q has the meaning %q and the advice %q", string(p), p.Meaning(), p.Advice())
		}
	}
}
