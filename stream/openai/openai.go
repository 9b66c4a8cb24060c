package openai

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/failsafe-go/failsafe-go/retrypolicy"
	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

// Options configure a [Model] or an [Embedder].
type Options struct {
	// BaseURL is the URL of the API with its version, for example "http://127.0.0.1:11434/v1"; "" means DefaultBaseURL.
	BaseURL string
	// Key is the API key. Each request sends it as a bearer token. "" means that requests send no token.
	Key string
	// Name is the provider's name for the model.
	Name string
}

// DefaultBaseURL is the URL of OpenAI's own API.
const DefaultBaseURL = "https://api.openai.com/v1"

// Model is a model of an OpenAI-compatible server. The methods of a Model may be called from any goroutine.
type Model struct {
	// static
	name          string
	maxCompletion bool // the server expects max_completion_tokens instead of max_tokens
	config        openai.ClientConfig
	blank         *http.Request // see newBlank
	http          *http.Client
	retry         retrypolicy.RetryPolicy[any]

	readers sync.Pool // pool of *bufio.Reader
}

var _ stream.Model = (*Model)(nil)

// New returns the model that options describe. It sends no request.
func New(options Options) *Model { return newModel(options, newTransport()) }

func newModel(options Options, transport http.RoundTripper) *Model {
	config := configOf(options)
	m := &Model{
		name:          options.Name,
		maxCompletion: usesMaxCompletionTokens(config.BaseURL, options.Name),
		config:        config,
		http:          &http.Client{Transport: transport, CheckRedirect: refuseRedirect},
		retry:         newRetry(),
		readers:       sync.Pool{New: func() any { return bufio.NewReaderSize(nil, lineBuffer) }},
	}
	m.blank = m.newBlank()
	return m
}

// configOf returns the library's configuration for options.
func configOf(options Options) openai.ClientConfig {
	config := openai.DefaultConfig(options.Key)
	config.BaseURL = options.BaseURL
	if config.BaseURL == "" {
		config.BaseURL = DefaultBaseURL
	}
	return config
}

// Name returns the provider's name for the model.
func (m *Model) Name() string { return m.name }

// String returns the name of the model, so that printing a model does not print its key.
func (m *Model) String() string { return m.name }

// GoString returns the same as String.
func (m *Model) GoString() string { return m.name }

// Close closes idle connections. The caller may still use the model.
func (m *Model) Close() { m.http.CloseIdleConnections() }

// attempt makes one request with the given body, and reads its response. It calls reasoning for each piece of reasoning.
func (m *Model) attempt(ctx context.Context, request []byte, reasoning func(), write func([]byte)) (stream.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var body io.ReadCloser
	var err error
	onNewStack(func() { body, err = m.open(ctx, request) })
	if err != nil {
		return stream.Result{}, err
	}
	// If the body has more bytes, Close aborts the request and waits until the abort is complete. So the provider stops
	// generating, and no request is open when Generate returns.
	defer body.Close()

	reader := m.readers.Get().(*bufio.Reader)
	reader.Reset(body)
	defer func() {
		reader.Reset(nil)
		m.readers.Put(reader)
	}()
	a := answer{reader: reader, write: write, reasoning: reasoning, cancel: cancel}
	err = a.read()
	return a.result, err
}

// onNewStack runs f in another goroutine and waits for it. The calls below f need a large stack, and the stack of this goroutine
// would stay that large while the reply is live: 16 KiB instead of 8. If f panics, onNewStack panics with the same value.
func onNewStack(f func()) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	if panicked := <-done; panicked != nil {
		panic(panicked)
	}
}
