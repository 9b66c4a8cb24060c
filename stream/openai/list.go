package openai

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxModelList is the maximum number of bytes that we read of a list of models. The longest list that we know, of a provider
	// that resells hundreds of models, has about 1 MB.
	maxModelList = 4 << 20
	maxModelName = 256 // maximum length of a model's name, in bytes

	// maxContext is the largest size of a context that we believe, in tokens.
	maxContext = 100_000_000
)

// modelList is a list of models, as GET /models returns it.
type modelList struct {
	Object string        `json:"object"`
	Data   []listedModel `json:"data"`
}

// listedModel is a model in a list of models. Servers name the size of the context differently: llama.cpp in meta.n_ctx, vLLM in
// max_model_len, OpenRouter and others in context_length.
type listedModel struct {
	ID            string    `json:"id"`
	Object        string    `json:"object"`
	Owner         string    `json:"owned_by"`
	Meta          modelMeta `json:"meta"`
	MaxModelLen   size      `json:"max_model_len"`
	ContextLength size      `json:"context_length"`
}

// context returns the size of the model's context in tokens; 0 if the list does not have it.
func (m listedModel) context() int {
	for _, n := range []size{m.Meta.Context, m.MaxModelLen, m.ContextLength} {
		if n > 0 {
			return int(n)
		}
	}
	return 0
}

// modelMeta is the member meta of llama.cpp. Other servers may use this name for something else, so any other JSON is ignored.
type modelMeta struct{ Context size }

// UnmarshalJSON never fails.
func (m *modelMeta) UnmarshalJSON(text []byte) error {
	var meta struct {
		Context size `json:"n_ctx"`
	}
	if json.Unmarshal(text, &meta) == nil {
		m.Context = meta.Context
	}
	return nil
}

// size is a number of tokens; 0 for any JSON that is not a number from 1 to maxContext.
type size int

// UnmarshalJSON never fails.
func (s *size) UnmarshalJSON(text []byte) error {
	if n, err := strconv.ParseFloat(string(text), 64); err == nil && n >= 1 && n <= maxContext {
		*s = size(n)
	}
	return nil
}

// parseList parses a list of models. Some providers send the bare array.
func parseList(text []byte) (list modelList, ok bool) {
	if text = bytes.TrimSpace(text); bytes.HasPrefix(text, []byte("[")) {
		err := json.Unmarshal(text, &list.Data)
		return list, err == nil && len(list.Data) > 0
	}
	err := json.Unmarshal(text, &list)
	return list, err == nil && (list.Object == "list" || len(list.Data) > 0)
}

// strict reports whether the list has the exact form of OpenAI's API. Detect requires that, because any program may listen on
// port 8080.
func (l modelList) strict() bool {
	for _, m := range l.Data {
		if m.Object != "model" || !isModelName(m.ID) {
			return false
		}
	}
	return l.Object == "list"
}

// firstChat returns the first chat model of the list: a model without "embed" in its name.
func (l modelList) firstChat() (m listedModel, ok bool) {
	for _, m := range l.Data {
		if isModelName(m.ID) && !strings.Contains(strings.ToLower(m.ID), "embed") {
			return m, true
		}
	}
	return listedModel{}, false
}

// find returns the model that a request with this name gets. Ollama adds ":latest" to a name without a tag. llama.cpp ignores the
// name, because it serves only one model.
func (l modelList) find(name string) (m listedModel, ok bool) {
	for _, m := range l.Data {
		if m.ID == name || m.ID == name+":latest" {
			return m, true
		}
	}
	if len(l.Data) == 1 && l.Data[0].Owner == "llamacpp" {
		return l.Data[0], true
	}
	return listedModel{}, false
}

func isModelName(id string) bool {
	return id != "" && len(id) <= maxModelName && utf8.ValidString(id) &&
		!strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsGraphic(r) })
}
