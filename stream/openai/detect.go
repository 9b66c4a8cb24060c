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
	detectTimeout = 300 * time.Millisecond // a local server that is there answers in a few
	maxModelList  = 1 << 20
	maxModelName  = 256
)

// Detect asks the local model servers that people run (Ollama, then llama.cpp, at their usual addresses) for their
// models and returns the first that answers as one, with its first model that by its name is not one for embeddings.
// Base URLs given are asked instead. It is strict about the answer: anything may listen on port 8080.
func Detect(ctx context.Context, baseURLs ...string) (baseURL, model string, ok bool) {
	if len(baseURLs) == 0 {
		baseURLs = []string{"http://127.0.0.1:11434/v1", "http://127.0.0.1:8080/v1"}
	}
	for _, baseURL := range baseURLs {
		ctx, cancel := context.WithTimeout(ctx, detectTimeout)
		model, err := FirstModel(ctx, baseURL, "")
		cancel()
		if err == nil {
			return baseURL, model, true
		}
	}
	return "", "", false
}

var errNoModels = errors.New("the server does not list its models as one with OpenAI's API does")

// FirstModel returns the first chat model that the server at baseURL lists: for when a server was configured and no
// model. Its error holds nothing of what the server sent.
func FirstModel(ctx context.Context, baseURL, key string) (string, error) {
	transport := newTransport()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(baseURL, "/")+"/models", nil)
	if err != nil {
		return "", errors.New("the base URL is no URL")
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	client := http.Client{Transport: transport, CheckRedirect: stayHere}
	response, err := client.Do(request)
	if err != nil {
		return "", plain(err)
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
		return "", plain(err)
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
