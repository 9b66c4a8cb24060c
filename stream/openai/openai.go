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

// Options name a model and its server.
type Options struct {
	// BaseURL is the address of the API with its version: "http://127.0.0.1:11434/v1". Empty means OpenAI's own.
	BaseURL string
	// Key is sent as a bearer token; empty sends none.
	Key string
	// Name is the provider's name of the model.
	Name string
}

// DefaultBaseURL is the address of OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// Model is a model behind an OpenAI-compatible API. Its methods may be called from any goroutine.
type Model struct {
	// static
	name          string
	maxCompletion bool // the server expects max_completion_tokens instead of max_tokens
	config        openai.ClientConfig
	http          *http.Client
	retry         retrypolicy.RetryPolicy[any]

	readers sync.Pool // of *bufio.Reader
}

var _ stream.Model = (*Model)(nil)

// New returns the model that options name. It uses no network.
func New(options Options) *Model { return newModel(options, newTransport()) }

func newModel(options Options, transport http.RoundTripper) *Model {
	config := configOf(options)
	return &Model{
		name:          options.Name,
		maxCompletion: usesMaxCompletionTokens(config.BaseURL, options.Name),
		config:        config,
		http:          &http.Client{Transport: transport, CheckRedirect: refuseRedirect},
		retry:         newRetry(),
		readers:       sync.Pool{New: func() any { return bufio.NewReaderSize(nil, lineBuffer) }},
	}
}

// configOf returns the library's configuration.
func configOf(options Options) openai.ClientConfig {
	config := openai.DefaultConfig(options.Key)
	config.BaseURL = options.BaseURL
	if config.BaseURL == "" {
		config.BaseURL = DefaultBaseURL
	}
	return config
}

// Name returns the provider's name of the model.
func (m *Model) Name() string { return m.name }

// String returns the name of the model, so that printing a model does not print its key.
func (m *Model) String() string { return m.name }

// GoString is String.
func (m *Model) GoString() string { return m.name }

// Close closes idle connections. The model may still be used.
func (m *Model) Close() { m.http.CloseIdleConnections() }

// attempt makes one request.
func (m *Model) attempt(ctx context.Context, request openai.ChatCompletionRequest, write func([]byte)) (stream.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := m.open(ctx, request)
	if err != nil {
		return stream.Result{}, err
	}
	// Closing the body before its end closes the connection, and waits until it is closed. So the provider notices
	// an abort, and the request is really closed when Generate returns.
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
