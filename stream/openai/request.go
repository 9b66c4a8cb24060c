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
	"strconv"
	"strings"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

const (
	// maxErrorBody is the maximum number of bytes that we read of an error response.
	maxErrorBody = 64 << 10
	// readBuffer and writeBuffer are the sizes of a connection's buffers, in bytes. The default sizes would add 5 KiB to the
	// memory of each live reply. readBuffer has room for ten events. A prompt that does not fit into writeBuffer costs one more
	// write.
	readBuffer  = 2 << 10
	writeBuffer = 1 << 10
)

// newTransport returns a transport for one provider. The transport has no timeout for response headers: we have seen a busy
// local model send nothing for 12 s. [stream.Timeouts] limits the silence.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 1024,
		ReadBufferSize:      readBuffer,
		WriteBufferSize:     writeBuffer,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true, // a server that compresses may hold tokens back
		// All replies share one HTTP/2 connection. Pings detect a dead connection before all its replies time out.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// refuseRedirect makes the HTTP client return a redirect as the response: a POST could become a GET, and another host
// could get the key.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// usesMaxCompletionTokens reports whether requests must name the limit of a reply max_completion_tokens instead of
// max_tokens. All models of OpenAI accept max_completion_tokens, and their newer models refuse max_tokens. Azure and some
// proxies serve models of OpenAI under the same names. Ollama ignores max_completion_tokens. So only models of OpenAI get
// max_completion_tokens.
func usesMaxCompletionTokens(baseURL, model string) bool {
	if u, err := url.Parse(baseURL); err == nil {
		if host := u.Hostname(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			return true
		}
	}
	// The library knows which models refuse max_tokens.
	//lint:ignore SA1019 the library reports an error exactly for the models that do not accept this deprecated field
	probe := openai.ChatCompletionRequest{Model: model, MaxTokens: 1}
	return errors.Is(openai.NewReasoningValidator().Validate(probe), openai.ErrReasoningModelMaxTokensDeprecated)
}

// newBlank returns a request of the library for a reply. All requests of the model have its URL and its headers; open sets their
// body and context. newBlank returns nil if the library refuses the name of the model.
func (m *Model) newBlank() *http.Request {
	doer := &captureDoer{send: func(*http.Request) (*http.Response, error) { return nil, errBlank }}
	_ = m.ask(doer)
	if r := doer.request; r != nil && r.URL.User != nil && r.Header.Get("Authorization") == "" { // as http.Client does
		password, _ := r.URL.User.Password()
		r.SetBasicAuth(r.URL.User.Username(), password)
	}
	return doer.request
}

var errBlank = errors.New("the request is not sent")

// ask makes the library send a request for a reply without messages. It returns the error that the library parsed from the
// response.
func (m *Model) ask(doer *captureDoer) error {
	r := openai.ChatCompletionRequest{Model: m.name}
	if m.maxCompletion {
		r.MaxCompletionTokens = 1
	} else {
		//lint:ignore SA1019 every provider except OpenAI uses this name
		r.MaxTokens = 1
	}
	config := m.config
	config.HTTPClient = doer
	_, err := openai.NewClientWithConfig(config).CreateChatCompletionStream(context.Background(), r)
	return err
}

// body returns the body of a request for a reply: the fields that the library would encode, with fewer escapes and with empty
// contents. For a prompt of 100 messages, the library needs 1 ms and 200 allocations more.
func (m *Model) body(request stream.Request) []byte {
	const around = len(`{"role":,"content":},`)
	size := 512 + len(m.name)
	for _, stop := range request.Stop {
		size += stream.StringSize(stop) + len(",")
	}
	for _, p := range request.Messages {
		size += around + stream.StringSize(p.Role) + stream.StringSize(p.Content)
	}
	b := append(make([]byte, 0, size), `{"model":`...)
	b = append(stream.AppendString(b, m.name), `,"messages":[`...)
	for i, p := range request.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = stream.AppendString(append(b, `{"role":`...), p.Role)
		b = stream.AppendString(append(b, `,"content":`...), p.Content)
		b = append(b, '}')
	}
	b = append(b, ']')
	if request.MaxTokens > 0 && !m.maxCompletion {
		b = strconv.AppendInt(append(b, `,"max_tokens":`...), int64(request.MaxTokens), 10)
	}
	if request.MaxTokens > 0 && m.maxCompletion {
		b = strconv.AppendInt(append(b, `,"max_completion_tokens":`...), int64(request.MaxTokens), 10)
	}
	b = appendParameters(b, &request)
	return append(b, `,"stream":true,"stream_options":{"include_usage":true}}`...)
}

// appendParameters appends the parameters that the request has, with a comma before each.
func appendParameters(b []byte, r *stream.Request) []byte {
	if r.Temperature != nil {
		b = appendFloat(append(b, `,"temperature":`...), *r.Temperature)
	}
	if r.TopP != nil {
		b = appendFloat(append(b, `,"top_p":`...), *r.TopP)
	}
	for i, stop := range r.Stop {
		if i == 0 {
			b = append(b, `,"stop":[`...)
		} else {
			b = append(b, ',')
		}
		b = stream.AppendString(b, stop)
	}
	if len(r.Stop) > 0 {
		b = append(b, ']')
	}
	if r.Seed != nil {
		b = strconv.AppendInt(append(b, `,"seed":`...), *r.Seed, 10)
	}
	if r.ReasoningEffort != "" {
		b = stream.AppendString(append(b, `,"reasoning_effort":`...), r.ReasoningEffort)
	}
	return b
}

// appendFloat appends a finite number as JSON.
func appendFloat(b []byte, f float64) []byte { return strconv.AppendFloat(b, f, 'g', -1, 64) }

// open sends a request for a reply, and returns the uncompressed body of the response.
func (m *Model) open(ctx context.Context, body []byte) (io.ReadCloser, error) {
	if m.blank == nil {
		return nil, failure(messageRefused, errNotBuilt)
	}
	request := m.blank.WithContext(ctx)
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	request.Body, _ = request.GetBody()
	request.ContentLength = int64(len(body))
	response, err := m.http.Transport.RoundTrip(request) // without http.Client, which copies the headers in case of a redirect
	switch {
	case err != nil:
		return nil, unreachable(err)
	case response.StatusCode != http.StatusOK:
		doer := &captureDoer{send: func(*http.Request) (*http.Response, error) { return response, nil }}
		err := m.ask(doer)
		return nil, refused(response, doer.text, err)
	}
	return uncompressed(response)
}

var errNotBuilt = &cause{what: "the request could not be built"}

// send sends a request and returns the uncompressed body of the response. call must send the request with the given client
// of the library go-openai. This package parses a response with status 200 itself: the library gets an empty body, and send
// ignores the result of call.
func send(config openai.ClientConfig, client *http.Client, call func(*openai.Client) error) (io.ReadCloser, error) {
	doer := &captureDoer{send: client.Do}
	config.HTTPClient = doer
	err := call(openai.NewClientWithConfig(config))
	switch {
	case doer.request == nil: // the library sent nothing
		return nil, failure(messageRefused, errNotBuilt)
	case doer.err != nil:
		return nil, unreachable(doer.err)
	case doer.response.StatusCode != http.StatusOK:
		return nil, refused(doer.response, doer.text, err)
	}
	return uncompressed(doer.response)
}

// uncompressed returns the uncompressed body of a response.
func uncompressed(response *http.Response) (io.ReadCloser, error) {
	body := response.Body
	switch encoding := strings.ToLower(response.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip": // some servers compress although the request does not accept compression
		return &gunzip{body: body}, nil
	}
	body.Close()
	return nil, failure(messageUnreadable, &cause{what: "unknown content encoding"})
}

// captureDoer is the library's HTTP client for one request. It keeps the request and the response. If the status is 200, only
// send's caller reads the body; the library reads only error responses.
type captureDoer struct {
	send     func(*http.Request) (*http.Response, error)
	request  *http.Request
	response *http.Response
	text     []byte // the body of an error response, at most maxErrorBody
	err      error
}

func (d *captureDoer) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Accept-Encoding", "identity")
	// This entry allows net/http to repeat the request if the server has just closed the idle connection. net/http sends
	// no header for an empty list of values.
	request.Header["Idempotency-Key"] = []string{}
	d.request = request
	d.response, d.err = d.send(request)
	if d.err != nil {
		return nil, d.err
	}
	shown := *d.response
	if shown.StatusCode == http.StatusOK {
		shown.Body = http.NoBody
		return &shown, nil
	}
	defer d.response.Body.Close()
	// Ignore a read error: the status and a part of the body are enough to report the failure.
	d.text, _ = io.ReadAll(io.LimitReader(d.response.Body, maxErrorBody))
	shown.Body = io.NopCloser(bytes.NewReader(d.text))
	return &shown, nil
}

// gunzip uncompresses a body while it arrives.
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
