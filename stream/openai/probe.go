package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Source says how the size of a model's context is known.
type Source string

// The sources that Probe uses.
const (
	Listed Source = "listed" // the list of models
	Props  Source = "props"  // GET /props of llama.cpp
	Show   Source = "show"   // POST /api/show of Ollama
)

// Found is what [Probe] has found out about a model.
type Found struct {
	Name          string // the provider's name for the model; "" if the server has no list and none is configured
	ContextTokens int    // the size of the model's context in tokens; 0 if unknown
	Source        Source // the source of ContextTokens; "" if it is unknown
}

// Probe asks a model server whether it has the model of o. If o has no name, Probe takes the first chat model of the server's
// list. The error is a [Problem], [ErrRateLimited], or ctx.Err() if ctx was cancelled. Probe keeps no connection open and
// generates no tokens.
//
// Probe first lists the models. A server without such a list has the API if it refuses an empty request for a reply as invalid.
// If the list does not have the size of the model's context and learn is true, Probe asks llama.cpp and Ollama for it.
func Probe(ctx context.Context, o Options, learn bool) (Found, error) {
	p := newProber(o)
	found, err := p.probe(ctx, learn)
	if err != nil && context.Cause(ctx) == context.Canceled {
		return Found{}, ctx.Err()
	}
	return found, err
}

// prober sends the requests of one probe.
type prober struct {
	base   string // without a slash at the end
	key    string
	name   string
	client *http.Client
}

func newProber(o Options) *prober {
	transport := newTransport()
	transport.DisableKeepAlives = true   // the next probe is a minute away
	transport.DisableCompression = false // some lists have a megabyte
	return &prober{
		base: strings.TrimRight(configOf(o).BaseURL, "/"), key: o.Key, name: o.Name,
		client: &http.Client{Transport: transport, CheckRedirect: refuseRedirect},
	}
}

func (p *prober) probe(ctx context.Context, learn bool) (Found, error) {
	list, err := p.list(ctx, p.base)
	if err == NotAnAPI {
		return p.withoutList(ctx)
	}
	if err != nil {
		return Found{}, err
	}
	model, err := p.choose(ctx, list)
	if err != nil {
		return Found{}, err
	}
	found := Found{Name: p.name}
	if p.name == "" {
		found.Name = model.ID
	}
	if found.ContextTokens = model.context(); found.ContextTokens > 0 {
		found.Source = Listed
	} else if learn {
		found.ContextTokens, found.Source = p.context(ctx, found.Name)
	}
	return found, nil
}

// list returns the list of models of the server at base.
func (p *prober) list(ctx context.Context, base string) (modelList, error) {
	text, err := p.get(ctx, base+"/models")
	if err != nil {
		return modelList{}, err
	}
	list, ok := parseList(text)
	if !ok {
		return modelList{}, NotAnAPI
	}
	return list, nil
}

// choose returns the entry of the configured model, or else of the first chat model. Some servers have more models than they
// list, and answer a request for one model.
func (p *prober) choose(ctx context.Context, list modelList) (listedModel, error) {
	if p.name == "" {
		first, ok := list.firstChat()
		if !ok {
			return first, NoChatModel
		}
		return first, nil
	}
	if m, ok := list.find(p.name); ok {
		return m, nil
	}
	text, err := p.get(ctx, p.base+"/models/"+url.PathEscape(p.name))
	var m listedModel
	switch {
	case err != nil && err != NotAnAPI:
		return m, err
	case err != nil, json.Unmarshal(text, &m) != nil, m.ID == "":
		return m, UnknownModel
	}
	return m, nil
}

// version matches a path that ends with the version of an API, for example /v1 or /v1beta/openai.
var version = regexp.MustCompile(`/v\d`)

// withoutList examines a server that does not list models below the base URL.
func (p *prober) withoutList(ctx context.Context) (Found, error) {
	u, err := url.Parse(p.base)
	if err == nil && !version.MatchString(u.Path) {
		if _, err := p.list(ctx, p.base+"/v1"); err == nil || err == WrongKey {
			return Found{}, MissingVersion
		}
	}
	status, text, err := p.do(ctx, http.MethodPost, p.base+"/chat/completions", []byte("{}"))
	var refusal struct {
		Error any `json:"error"`
	}
	switch isJSON := json.Unmarshal(text, &refusal) == nil; {
	case err != nil:
		return Found{}, err
	case errorOfStatus(status) == WrongKey, errorOfStatus(status) == ErrRateLimited:
		return Found{}, errorOfStatus(status)
	case (status != http.StatusBadRequest && status != http.StatusUnprocessableEntity) || !isJSON || refusal.Error == nil:
		return Found{}, NotAnAPI
	case p.name == "":
		return Found{}, NoChatModel
	}
	return Found{Name: p.name}, nil
}

// context asks llama.cpp and then Ollama for the size of a model's context. The paths of both are beside /v1.
func (p *prober) context(ctx context.Context, name string) (int, Source) {
	root := strings.TrimSuffix(p.base, "/v1")
	var props struct {
		Settings struct {
			Context size `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if text, err := p.get(ctx, root+"/props"); err == nil && json.Unmarshal(text, &props) == nil && props.Settings.Context > 0 {
		return int(props.Settings.Context), Props
	}
	body, _ := json.Marshal(map[string]string{"model": name})
	status, text, err := p.do(ctx, http.MethodPost, root+"/api/show", body)
	if err == nil && status == http.StatusOK {
		if n := contextOfShow(text); n > 0 {
			return n, Show
		}
	}
	return 0, ""
}

// numCtx matches the parameter that sets the size of the context in the text of Ollama's parameters.
var numCtx = regexp.MustCompile(`(?m)^num_ctx\s+(\d+)\s*$`)

// contextOfShow returns the size of the context in a response of Ollama's /api/show: the parameter num_ctx of the model, or else
// the size with which the model was trained. It returns 0 if the response has neither.
func contextOfShow(text []byte) int {
	var shown struct {
		Parameters string                     `json:"parameters"`
		Info       map[string]json.RawMessage `json:"model_info"`
	}
	if json.Unmarshal(text, &shown) != nil {
		return 0
	}
	var n size
	if set := numCtx.FindStringSubmatch(shown.Parameters); set != nil {
		_ = n.UnmarshalJSON([]byte(set[1]))
		return int(n)
	}
	for name, value := range shown.Info {
		if strings.HasSuffix(name, ".context_length") {
			_ = n.UnmarshalJSON(value)
		}
	}
	return int(n)
}

// get returns the body of a JSON response with status 200. The error is a Problem or ErrRateLimited.
func (p *prober) get(ctx context.Context, target string) ([]byte, error) {
	status, text, err := p.do(ctx, http.MethodGet, target, nil)
	if err == nil && status != http.StatusOK {
		err = errorOfStatus(status)
	}
	return text, err
}

// do sends a request, and returns the status of the response. It returns the body only if it is JSON. The error is a Problem.
func (p *prober) do(ctx context.Context, method, target string, body []byte) (status int, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, NotAnAPI // cmd/parley has checked the URL
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if p.key != "" {
		request.Header.Set("Authorization", "Bearer "+p.key)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return 0, nil, problemOf(err)
	}
	defer response.Body.Close()
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/json" {
		return response.StatusCode, nil, nil
	}
	text, err = io.ReadAll(io.LimitReader(response.Body, maxModelList))
	if err != nil {
		return 0, nil, problemOf(err)
	}
	return response.StatusCode, text, nil
}
