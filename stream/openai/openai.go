// Package openai is a [stream.Model], and a [stream.Embedder], over any server that speaks OpenAI's API: OpenAI itself,
// Ollama, llama.cpp, vLLM and the like. sashabaranov/go-openai, imported here alone, builds the requests and reads the errors
// that come in place of an answer; the answer itself we read ourselves, because the library takes a broken one for a
// whole one and costs four allocations a token (parts.md).
//
// A message's way through it: [Model.Generate] retries an attempt while nothing was said (retry.go) → the request goes
// out and the response's body is kept (request.go) → its lines are read as events until the model said how it ended
// (answer.go) → a line is taken apart by hand or, where it has any but the plain shape, by encoding/json (chunk.go).
//
// [Embedder] does the same for embeddings (embed.go): its requests are built and refused alike, and its answer is read by us too.
//
// What real servers send, and that only a finish reason or [DONE] means success, was learned from captures of them;
// the tests replay those (testdata).
package openai

import (
	"bufio"
	"context"
	"net/http"
	"sync"

	"github.com/failsafe-go/failsafe-go/retrypolicy"
	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

// Options says which model, and where.
type Options struct {
	// BaseURL is where the API is, its version included: "http://127.0.0.1:11434/v1". Empty means OpenAI's own.
	BaseURL string
	// Key is sent as a bearer token; empty sends none.
	Key string
	// Name is what the provider calls the model.
	Name string
}

// DefaultBaseURL is OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// Model is a model behind an OpenAI-compatible API. Its methods may be called from any goroutine.
type Model struct {
	// static
	name   string
	newer  bool // the limit of a reply is called max_completion_tokens here
	config openai.ClientConfig
	http   *http.Client
	retry  retrypolicy.RetryPolicy[any]

	readers sync.Pool // of *bufio.Reader
}

var _ stream.Model = (*Model)(nil)

// New returns the model that options name. It asks nothing of the network.
func New(options Options) *Model { return newModel(options, newTransport()) }

func newModel(options Options, transport http.RoundTripper) *Model {
	config := configOf(options)
	return &Model{
		name:    options.Name,
		newer:   takesNewerLimit(config.BaseURL, options.Name),
		config:  config,
		http:    &http.Client{Transport: transport, CheckRedirect: stayHere},
		retry:   newRetry(),
		readers: sync.Pool{New: func() any { return bufio.NewReaderSize(nil, lineBuffer) }},
	}
}

// configOf is what the library needs to know.
func configOf(options Options) openai.ClientConfig {
	config := openai.DefaultConfig(options.Key)
	config.BaseURL = options.BaseURL
	if config.BaseURL == "" {
		config.BaseURL = DefaultBaseURL
	}
	return config
}

// Name is what the provider calls the model.
func (m *Model) Name() string { return m.name }

// String is the model's name: a model that is printed by mistake does not print its key.
func (m *Model) String() string { return m.name }

// GoString is as String.
func (m *Model) GoString() string { return m.name }

// Close closes the connections that nobody uses. The model may still be used afterwards.
func (m *Model) Close() { m.http.CloseIdleConnections() }

// attempt asks once.
func (m *Model) attempt(ctx context.Context, request openai.ChatCompletionRequest, write func([]byte)) (stream.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := m.open(ctx, request)
	if err != nil {
		return stream.Result{}, err
	}
	// Closing the body of an answer that was not read to its end closes the connection, and waits until it is
	// closed: that is how the provider learns of an abort, and why Generate may say that it has.
	defer body.Close()

	reader := m.readers.Get().(*bufio.Reader)
	reader.Reset(body)
	defer func() {
		reader.Reset(nil)
		m.readers.Put(reader)
	}()
	a := answer{reader: reader, write: write, cancel: cancel}
	err = a.read()
	return a.result, err
}
