package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"parley/stream"
)

// embedder returns an embedding model, and a channel with the requests that its server gets. answer writes the server's
// response to each request.
func embedder(t *testing.T, answer func(w net.Conn)) (*Embedder, chan embedRequest) {
	requests := make(chan embedRequest, 16)
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a := embedRequest{path: r.URL.Path, key: r.Header.Get("Authorization")}
		_ = json.Unmarshal(body, &a)
		requests <- a
		answer(w)
	})
	e := NewEmbedder(Options{BaseURL: server.url(), Key: "sk-secret-key", Name: "meaning"})
	t.Cleanup(e.Close)
	return e, requests
}

type embedRequest struct {
	path, key string
	Model     string
	Input     []string
}

func respondWith(status int, body string) func(net.Conn) {
	return func(w net.Conn) {
		fmt.Fprintf(w, "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
}

func TestEmbed_VectorsInOrderOfTexts(t *testing.T) {
	for name, body := range map[string]string{
		"response of OpenAI":      `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1e-3]},{"object":"embedding","index":1,"embedding":[0, 1]}],"model":"meaning","usage":{"prompt_tokens":9,"total_tokens":9}}`,
		"vectors out of order":    `{"data":[{"index":1,"embedding":[0,1]},{"embedding":[0.5,-0.001],"index":0}],"usage":{"prompt_tokens":9}}`,
		"vectors without indexes": `{"usage":{"prompt_tokens":9},"data":[{"embedding":[5e-1,-1e-3]},{"embedding":[ 0,1.0 ]}],"error":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			e, requests := embedder(t, respondWith(200, body))
			got, err := e.Embed(t.Context(), []string{"one", "two"})
			if err != nil || fmt.Sprint(got) != "{[[0.5 -0.001] [0 1]] 9}" {
				t.Errorf("got %v, %v", got, err)
			}
			if a := <-requests; a.path != "/v1/embeddings" || a.Model != "meaning" || fmt.Sprint(a.Input) != "[one two]" || a.key != "Bearer sk-secret-key" {
				t.Errorf("the server got the request %+v", a)
			}
		})
	}
	none, err := NewEmbedder(Options{}).Embed(t.Context(), nil)
	if err != nil || none.Vectors != nil {
		t.Errorf("without texts: got %v, %v; want no vectors and no error", none, err)
	}
}

func TestEmbed_InvalidResponse_FailsWithPublicMessage(t *testing.T) {
	long := strings.Repeat("0.125,", maxDimensions) + "1"
	for name, test := range map[string]struct {
		status  int
		body    string
		message string
	}{
		"fewer vectors than texts":       {200, `{"data":[{"index":0,"embedding":[1]}]}`, messageUnreadable},
		"more vectors than texts":        {200, `{"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]}`, messageUnreadable},
		"no vectors":                     {200, `{"data":[]}`, messageUnreadable},
		"no field data":                  {200, `{"object":"list"}`, messageUnreadable},
		"field data twice":               {200, `{"data":[{"embedding":[1]},{"embedding":[1]}],"data":[{"embedding":[1]},{"embedding":[1]}]}`, messageUnreadable},
		"same index twice":               {200, `{"data":[{"index":1,"embedding":[1]},{"index":1,"embedding":[1]}]}`, messageUnreadable},
		"index too high":                 {200, `{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}`, messageUnreadable},
		"negative index":                 {200, `{"data":[{"index":0,"embedding":[1]},{"index":-1,"embedding":[1]}]}`, messageUnreadable},
		"vector of zeros":                {200, `{"data":[{"embedding":[0,0.0]},{"embedding":[1,0]}]}`, messageUnreadable},
		"empty vector":                   {200, `{"data":[{"embedding":[]},{"embedding":[]}]}`, messageUnreadable},
		"vectors of different lengths":   {200, `{"data":[{"embedding":[1,2]},{"embedding":[1,2,3]}]}`, messageUnreadable},
		"NaN in a vector":                {200, `{"data":[{"embedding":[NaN,1]},{"embedding":[1,2]}]}`, messageUnreadable},
		"null in a vector":               {200, `{"data":[{"embedding":[null,1]},{"embedding":[1,2]}]}`, messageUnreadable},
		"number too large for a float32": {200, `{"data":[{"embedding":[1e39,1]},{"embedding":[1,2]}]}`, messageUnreadable},
		"too many dimensions":            {200, `{"data":[{"embedding":[` + long + `]},{"embedding":[` + long + `]}]}`, messageUnreadable},
		"vector in base64":               {200, `{"data":[{"embedding":"AACAPw=="},{"embedding":"AACAPw=="}]}`, messageUnreadable},
		"nested vector":                  {200, `{"data":[{"embedding":[[1,2]]},{"embedding":[[1,2]]}]}`, messageUnreadable},
		"HTML page":                      {200, `<html>secretly</html>`, messageUnreadable},
		"array instead of an object":     {200, `[1,2]`, messageUnreadable},
		"incomplete JSON":                {200, `{"data":[{"embedding":[1,2]},{"embe`, messageBrokeOff},
		"empty body":                     {200, ``, messageBrokeOff},
		"error with status 200":          {200, `{"error":{"message":"secretly broken","type":"server_error"}}`, messageFailed},
		"field over the size limit":      {200, `{"object":"` + strings.Repeat("x", 3*maxDimensions*numberBytes) + `"}`, messageTooLarge},
		"200,001 empty objects":          {200, `{"data":[` + strings.Repeat(`{},`, 200_000) + `{}]}`, messageUnreadable},
		"wrong credentials":              {401, `{"error":{"message":"Incorrect key sk-secret-key","code":"invalid_api_key"}}`, messageCredentials},
		"unknown model":                  {404, `{"error":{"message":"secretly unknown"}}`, messageUnknown},
		"too many requests":              {429, `{"error":{"message":"secretly busy"}}`, messageBusy},
		"status 500":                     {500, `secretly`, messageDown},
		"redirect":                       {302, ``, messageRefused},
		"text too long for the model":    {400, `{"error":{"message":"secretly long","code":"context_length_exceeded"}}`, messageTooLong},
		"usage is a string":              {200, `{"usage":{"prompt_tokens":"many"},"data":[]}`, messageUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := embedder(t, respondWith(test.status, test.body))
			got, err := e.Embed(t.Context(), []string{"one bard", "Once upon"})
			failed, ok := errors.AsType[*stream.ModelError](err)
			code := stream.CodeProviderError
			if test.message == messageTooLong {
				code = stream.CodeContextTooLong
			}
			if !ok || failed.Message != test.message || failed.Code != code || got.Vectors != nil {
				t.Fatalf("got %v, %v, want %q", got, err, test.message)
			}
			if printed := fmt.Sprintf("%v %v %+v", err, failed.Cause, failed.Cause); strings.Contains(printed, "secret") || strings.Contains(printed, "bard") {
				t.Errorf("the error contains text of the provider: %q", printed)
			}
		})
	}
}

// TestEmbed_LargeInvalidResponse_MemoryAtMost16MiB checks that Embed refuses a large, invalid response and allocates at
// most 16 MiB. Each response is smaller than the size limit.
func TestEmbed_LargeInvalidResponse_MemoryAtMost16MiB(t *testing.T) {
	const most = 16 << 20
	for name, body := range map[string]string{
		"objects": `{"data":[` + strings.Repeat(`{},`, maxDimensions*numberBytes/3) + `{}]}`,
		"numbers": `{"data":[{"embedding":[` + strings.Repeat(`0,`, maxDimensions*numberBytes/2) + `1]}]}`,
		"nesting": `{"x":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `}`,
		"fields":  `{` + strings.Repeat(`"a":0,`, maxDimensions*numberBytes/6) + `"a":0}`,
	} {
		e, _ := embedder(t, respondWith(200, body))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := e.Embed(t.Context(), []string{"text"})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > most {
			t.Errorf("%s: Embed allocated %d bytes and returned %v; want at most %d bytes and an error", name, took, err, most)
		}
	}
}

func TestEmbed_LongText_CutBetweenCharacters(t *testing.T) {
	e, requests := embedder(t, respondWith(200, `{"data":[{"embedding":[1]},{"embedding":[1]}]}`))
	if _, err := e.Embed(t.Context(), []string{strings.Repeat("é", 10_000), strings.Repeat("x", maxInput)}); err != nil {
		t.Fatal(err)
	}
	a := <-requests
	if first := a.Input[0]; len(first) != maxInput-1 || !utf8.ValidString(first) || len(a.Input[1]) != maxInput {
		t.Errorf("the texts in the request have %d and %d bytes, want %d and %d",
			len(first), len(a.Input[1]), maxInput-1, maxInput)
	}
}

func TestEmbed_ContextEnds_ReturnsContextError(t *testing.T) {
	closed := make(chan struct{})
	e, requests := embedder(t, func(w net.Conn) {
		_, _ = w.Read(make([]byte, 1)) // blocks until the client closes the request
		close(closed)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-requests
		cancel()
	}()
	if _, err := e.Embed(ctx, []string{"text"}); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	<-closed
	ctx, cancel = context.WithTimeout(t.Context(), 0)
	defer cancel()
	if _, err := e.Embed(ctx, []string{"text"}); err != context.DeadlineExceeded {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestEmbed_NoServer_FailsAsUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	e := NewEmbedder(Options{BaseURL: "http://" + listener.Addr().String() + "/v1", Name: "meaning"})
	defer e.Close()
	_, err = e.Embed(t.Context(), []string{"text"})
	if failed, ok := errors.AsType[*stream.ModelError](err); !ok || failed.Message != messageUnreachable {
		t.Errorf("got %v, want %q", err, messageUnreachable)
	}
	if printed := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(printed, "sk-") {
		t.Errorf("printing the model shows its key: %s", printed)
	}
}
