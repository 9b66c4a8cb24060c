package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	detectTimeout = 300 * time.Millisecond // for each server; a local server responds within a few milliseconds
	maxModelList  = 1 << 20                // maximum number of bytes that we read of a list of models
	maxModelName  = 256                    // maximum length of a model's name, in bytes
)

// Detect finds a model server. It tries the servers at baseURLs in order. Without baseURLs, it tries the usual local
// addresses of Ollama and llama.cpp. It returns the first server that lists a chat model, and the name of that model. A chat
// model is a model without "embed" in its name. Detect checks the list strictly, because any program may listen on port
// 8080.
func Detect(ctx context.Context, baseURLs ...string) (baseURL, model string, ok bool) {
	return detect(ctx, withDetectTimeout, baseURLs)
}

func withDetectTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, detectTimeout)
}

// detect is Detect with a function that returns the context for the request to one server. Tests use other timeouts.
func detect(ctx context.Context, bound func(context.Context) (context.Context, context.CancelFunc), baseURLs []string) (baseURL, model string, ok bool) {
	if len(baseURLs) == 0 {
		baseURLs = []string{"http://127.0.0.1:11434/v1", "http://127.0.0.1:8080/v1"}
	}
	for _, baseURL := range baseURLs {
		ctx, cancel := bound(ctx)
		model, err := FirstModel(ctx, baseURL, "")
		cancel()
		if err == nil {
			return baseURL, model, true
		}
	}
	return "", "", false
}

var errNoModels = errors.New("the server does not list models as OpenAI's API does")

// FirstModel returns the name of the first chat model that the server at baseURL lists. Configurations that name a server
// but no model use it. The error contains no text from the server.
func FirstModel(ctx context.Context, baseURL, key string) (string, error) {
	transport := newTransport()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(baseURL, "/")+"/models", nil)
	if err != nil {
		return "", errors.New("the base URL is not a valid URL")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	client := http.Client{Transport: transport, CheckRedirect: refuseRedirect}
	response, err := client.Do(request)
	if err != nil {
		return "", sanitise(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", &cause{what: messageRefused, status: response.StatusCode}
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "application/json" {
		return "", errNoModels
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxModelList))
	if err != nil {
		return "", sanitise(err)
	}
	return firstModel(text)
}

func firstModel(text []byte) (string, error) {
	var list struct {
		Object string `json:"object"`
		Data   []struct {
			ID     string `json:"id"`
			Object string `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &list); err != nil || list.Object != "list" {
		return "", errNoModels
	}
	for _, m := range list.Data {
		if m.Object != "model" || !isModelName(m.ID) {
			return "", errNoModels
		}
		if !strings.Contains(strings.ToLower(m.ID), "embed") {
			return m.ID, nil
		}
	}
	return "", errNoModels
}

func isModelName(id string) bool {
	return id != "" && len(id) <= maxModelName && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsGraphic(r) })
}
