package openai

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

// maxErrorBody is how much is read of what a provider sends in place of an answer.
const maxErrorBody = 64 << 10

// newTransport returns the connections to a provider. There is no limit to how late its headers may be: a local model
// that is busy with others was seen to send nothing for 12 s. How long is too long, [stream.Patience] says.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // a compressor holds tokens back
		// All replies share one HTTP/2 connection: if it is dead, find out before they all ran out of patience.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// stayHere follows no redirect: a POST would arrive as a GET, and a key at a stranger's.
func stayHere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// takesNewerLimit tells how the bound of a reply is called. Ollama ignores max_completion_tokens; OpenAI's newer models
// refuse max_tokens, and all its models take the other, as do its models at Azure or behind a proxy that keeps their
// names. So: max_completion_tokens for those, max_tokens for the rest of the world.
func takesNewerLimit(baseURL, model string) bool {
	if u, err := url.Parse(baseURL); err == nil {
		if host := u.Hostname(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			return true
		}
	}
	// The library refuses max_tokens for the models that it knows to refuse it.
	//lint:ignore SA1019 it is asked about for being deprecated
	probe := openai.ChatCompletionRequest{Model: model, MaxTokens: 1}
	return errors.Is(openai.NewReasoningValidator().Validate(probe), openai.ErrReasoningModelMaxTokensDeprecated)
}

// translate says request in the provider's terms.
func (m *Model) translate(request stream.Request) openai.ChatCompletionRequest {
	messages := make([]openai.ChatCompletionMessage, len(request.Messages))
	for i, p := range request.Messages {
		messages[i] = openai.ChatCompletionMessage{Role: p.Role, Content: p.Content}
	}
	r := openai.ChatCompletionRequest{
		Model:         m.name,
		Messages:      messages,
		StreamOptions: &openai.StreamOptions{IncludeUsage: true},
	}
	if m.newer {
		r.MaxCompletionTokens = request.MaxTokens
	} else {
		//lint:ignore SA1019 the name that every provider but OpenAI knows
		r.MaxTokens = request.MaxTokens
	}
	return r
}

// open sends the request and returns the answer's body, uncompressed.
func (m *Model) open(ctx context.Context, request openai.ChatCompletionRequest) (io.ReadCloser, error) {
	return ask(m.config, m.http, func(client *openai.Client) error {
		_, err := client.CreateChatCompletionStream(ctx, request)
		return err
	})
}

// ask has the library send a request, and returns the answer's body, uncompressed. What the library says of that is of no
// interest: it is not shown it.
func ask(config openai.ClientConfig, client *http.Client, send func(*openai.Client) error) (io.ReadCloser, error) {
	doer := &doer{client: client}
	config.HTTPClient = doer
	err := send(openai.NewClientWithConfig(config))
	switch {
	case doer.response == nil && doer.err == nil: // the library did not even ask
		return nil, failure(messageRefused, &cause{what: "the request could not be built"})
	case doer.err != nil:
		return nil, unreachable(doer.err)
	case doer.response.StatusCode != http.StatusOK:
		return nil, refused(doer.response, err)
	}
	body := doer.response.Body
	switch encoding := strings.ToLower(doer.response.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip": // not asked for
		return &gunzip{body: body}, nil
	}
	body.Close()
	return nil, failure(messageUnreadable, &cause{what: "unknown content encoding"})
}

// doer is between the library and the network, for one request: it keeps the response, so that we read its body
// ourselves, and lets the library have what it can read an error from.
type doer struct {
	client   *http.Client
	response *http.Response
	err      error
}

func (d *doer) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Accept-Encoding", "identity")
	// Not sent, being empty: it tells net/http that a request which met a connection that the server had just closed for
	// idleness may go out again on another at once.
	request.Header["Idempotency-Key"] = []string{}
	d.response, d.err = d.client.Do(request)
	if d.err != nil {
		return nil, d.err
	}
	shown := *d.response
	if shown.StatusCode == http.StatusOK {
		shown.Body = http.NoBody
		return &shown, nil
	}
	defer d.response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(d.response.Body, maxErrorBody)) // what there is of it; the status says enough
	shown.Body = io.NopCloser(bytes.NewReader(text))
	return &shown, nil
}

// gunzip uncompresses a body as it arrives.
type gunzip struct {
	body io.ReadCloser
	zip  *gzip.Reader
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.zip == nil {
		if g.zip, err = gzip.NewReader(g.body); err != nil {
			return 0, err
		}
	}
	return g.zip.Read(p)
}

func (g *gunzip) Close() error { return g.body.Close() }
