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

// maxErrorBody is the number of bytes that are read of an error response.
const maxErrorBody = 64 << 10

// newTransport returns a transport for one provider. It has no timeout for headers: a busy local model was seen to send
// nothing for 12 s. [stream.Timeouts] bounds the silence.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // a compressor would delay tokens
		// All replies share one HTTP/2 connection. Pings detect that it is dead before all the replies time out.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// refuseRedirect follows no redirect: a POST could become a GET, and the key could go to another host.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// usesMaxCompletionTokens reports whether the limit of a reply is sent as max_completion_tokens instead of max_tokens.
// All OpenAI models accept max_completion_tokens, and newer ones refuse max_tokens, also at Azure or behind a proxy that
// keeps their names. Ollama ignores max_completion_tokens. So only OpenAI's models get max_completion_tokens.
func usesMaxCompletionTokens(baseURL, model string) bool {
	if u, err := url.Parse(baseURL); err == nil {
		if host := u.Hostname(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			return true
		}
	}
	// The library knows which models refuse max_tokens.
	//lint:ignore SA1019 the point is that it is deprecated
	probe := openai.ChatCompletionRequest{Model: model, MaxTokens: 1}
	return errors.Is(openai.NewReasoningValidator().Validate(probe), openai.ErrReasoningModelMaxTokensDeprecated)
}

// chatRequest converts a request to the form of the provider's API.
func (m *Model) chatRequest(request stream.Request) openai.ChatCompletionRequest {
	messages := make([]openai.ChatCompletionMessage, len(request.Messages))
	for i, p := range request.Messages {
		messages[i] = openai.ChatCompletionMessage{Role: p.Role, Content: p.Content}
	}
	r := openai.ChatCompletionRequest{
		Model:         m.name,
		Messages:      messages,
		StreamOptions: &openai.StreamOptions{IncludeUsage: true},
	}
	if m.maxCompletion {
		r.MaxCompletionTokens = request.MaxTokens
	} else {
		//lint:ignore SA1019 every provider except OpenAI uses this name
		r.MaxTokens = request.MaxTokens
	}
	return r
}

// open sends the request and returns the body of the response, uncompressed.
func (m *Model) open(ctx context.Context, request openai.ChatCompletionRequest) (io.ReadCloser, error) {
	return send(m.config, m.http, func(client *openai.Client) error {
		_, err := client.CreateChatCompletionStream(ctx, request)
		return err
	})
}

// send makes the library send a request, and returns the body of the response, uncompressed. After a 200, it ignores the
// library's own result, because the library gets an empty body.
func send(config openai.ClientConfig, client *http.Client, call func(*openai.Client) error) (io.ReadCloser, error) {
	doer := &captureDoer{client: client}
	config.HTTPClient = doer
	err := call(openai.NewClientWithConfig(config))
	switch {
	case doer.response == nil && doer.err == nil: // the library sent nothing
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
	case "gzip", "x-gzip": // some servers compress although we do not accept it
		return &gunzip{body: body}, nil
	}
	body.Close()
	return nil, failure(messageUnreadable, &cause{what: "unknown content encoding"})
}

// captureDoer is the HTTP client of the library for one request. It keeps the response, so that we can read a 200
// ourselves. The library reads only error responses.
type captureDoer struct {
	client   *http.Client
	response *http.Response
	err      error
}

func (d *captureDoer) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Accept-Encoding", "identity")
	// net/http does not send an empty value. The field allows net/http to repeat the request at once on another
	// connection, if the server has just closed this one because it was idle.
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
	text, _ := io.ReadAll(io.LimitReader(d.response.Body, maxErrorBody)) // a part is enough, because we have the status
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
