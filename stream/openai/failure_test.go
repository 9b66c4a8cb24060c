package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"parley/stream"
)

// withoutRetries disables the retries of the model.
func withoutRetries(m *Model) *Model {
	m.retry = retrypolicy.NewBuilder[any]().WithMaxAttempts(1).ReturnLastFailure().Build()
	return m
}

// answering returns a model whose server sends one response.
func answering(t *testing.T, writes ...[]byte) *Model {
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, piece := range writes {
			_, _ = w.Write(piece)
		}
	})
	return withoutRetries(open(t, server.url()))
}

// wantNoProviderText fails the test if the public text or the cause contains the key, a prompt, or a word that the provider sent.
// Identifiers are allowed.
func wantNoProviderText(t *testing.T, err *stream.ModelError, sent string) {
	t.Helper()
	printed := err.Error() + fmt.Sprintf(" %v %+v", err.Cause, errors.Unwrap(err))
	for _, secret := range []string{"sk-secret-key", "bard", "Once upon"} {
		if strings.Contains(printed, secret) {
			t.Errorf("%q contains %q", printed, secret)
		}
	}
	own := strings.Join([]string{messageUnreachable, messageCredentials, messageTooLong, messageUnknown, messageBusy, messageDown,
		messageRefused, messageBrokeOff, messageNoAnswer, messageUnreadable, messageTooLarge, messageFailed,
		"status an error within the answer a response without events an end without a finish reason unexpected EOF " + errUnreadable.Error()}, " ")
	for _, word := range regexp.MustCompile(`[\pL']{4,}`).FindAllString(printed, -1) {
		if strings.Contains(sent, word) && !strings.Contains(own, word) && !regexp.MustCompile(`"(type|code)":"[a-z_]*`+word).MatchString(sent) {
			t.Errorf("%q contains the provider's word %q", printed, word)
		}
	}
}

func TestGenerate_CapturedRefusals_NoProviderText(t *testing.T) {
	for name, message := range map[string]string{
		"llama-server/09-bad-json":             messageDown,
		"llama-server/10-no-messages":          messageRefused,
		"llama-server/12-bad-type":             messageRefused,
		"llama-server/13-bad-param":            messageRefused,
		"llama-server/15-unknown-path":         messageUnknown,
		"llama-server/16-wrong-method":         messageUnknown,
		"llama-server/17-empty-body":           messageDown,
		"llama-server/18-ctx-overflow":         messageTooLong,
		"llama-server/40-api-key":              messageCredentials,
		"ollama/08-stream-tools":               messageRefused,
		"ollama/09-bad-json":                   messageRefused,
		"ollama/10-no-messages":                messageRefused,
		"ollama/11-empty-messages":             messageRefused,
		"ollama/12-bad-type":                   messageRefused,
		"ollama/13-bad-param":                  messageRefused,
		"ollama/14-unknown-model":              messageUnknown,
		"ollama/15-unknown-path":               messageUnknown,
		"ollama/16-wrong-method":               messageRefused,
		"ollama/17-empty-body":                 messageRefused,
		"ollama/40-foreign-host":               messageCredentials,
		"llama-server/11-empty-messages":       messageNoAnswer, // status 200, but not a stream
		"llama-server/14-unknown-model":        messageNoAnswer,
		"ollama/18-ctx-overflow":               messageNoAnswer,
		"llama-server/01-models":               messageNoAnswer,
		"ollama/20-max-tokens-0":               messageBrokeOff,
		"ollama/28-max-completion-tokens":      messageBrokeOff,
		"llama-server/41-error-mid-stream-raw": messageFailed,
	} {
		t.Run(name, func(t *testing.T) {
			c := load(t, name+".txt")
			want := ""
			if c.chunked() {
				want = c.expected(t).text
			}
			outcome, text := pumped(answering(t, c.pieces()...))
			wantFailed(t, outcome, message)
			if text != want {
				t.Errorf("the text is %q, want %q", text, want)
			}
			if outcome.Err != nil {
				wantNoProviderText(t, outcome.Err, string(c.body))
				if c.status != 200 && !strings.Contains(outcome.Err.Error(), fmt.Sprint("status ", c.status)) {
					t.Errorf("%v does not contain the status %d", outcome.Err, c.status)
				}
			}
		})
	}
}

func TestCause_ContainsProvidersTypeOrCode(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{`{"error":{"message":"Hi","type":"invalid_request_error","code":"context_length_exceeded"}}`,
			messageTooLong + ": status 400, context_length_exceeded"},
		{`{"error":{"message":"Hi","type":"exceed_context_size_error","code":400}}`, messageTooLong + ": status 400, exceed_context_size_error"},
		{`{"error":{"message":"Hi","type":"Bad Request Error","code":"no spaces"}}`, messageRefused + ": status 400"},
		{`{"error":{"message":"Hi","type":"` + strings.Repeat("a", 65) + `"}}`, messageRefused + ": status 400"},
		{`{"error":"Hi"}`, messageRefused + ": status 400"},
		{strings.Repeat("Hi", maxErrorBody), messageRefused + ": status 400"},
		{``, messageRefused + ": status 400"},
	} {
		head := fmt.Sprintf("HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n", len(test.body))
		outcome, _ := pumped(answering(t, []byte(head+test.body)))
		if outcome.Err == nil || outcome.Err.Error() != test.want {
			t.Errorf("%.80s: %v, want %s", test.body, outcome.Err, test.want)
		}
	}
}

const (
	okHead   = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	plainEnd = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	someText = `data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}` + "\n\n"
	lastUse  = `data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\n"
)

// chunked returns text as one chunk. If ended is true, the final chunk follows.
func chunked(text string, ended bool) []byte {
	wire := fmt.Appendf([]byte(okHead), "%x\r\n%s\r\n", len(text), text)
	if ended {
		wire = append(wire, "0\r\n\r\n"...)
	}
	return wire
}

func TestGenerate_SucceedsOnlyWithFinishOrDone(t *testing.T) {
	big := strings.Repeat("x", maxLine)
	for name, test := range map[string]struct {
		body    string
		ended   bool
		message string // "" for success
	}{
		"a finish reason, a clean end":         {someText + plainEnd, true, ""},
		"a finish reason, usage, a cut":        {someText + plainEnd + lastUse, false, ""},
		"a finish reason, a cut":               {someText + plainEnd, false, ""},
		"a finish reason, garbage":             {someText + plainEnd + "data: {{\n", true, ""},
		"a finish reason, an error":            {someText + plainEnd + "data: {\"error\":{}}\n", true, ""},
		"done":                                 {someText + "data: [DONE]\n\n", true, ""},
		"done without a line's end":            {someText + "data: [DONE]", true, ""},
		"done, no space":                       {someText + "data:[DONE]\n", true, ""},
		"carriage returns":                     {strings.ReplaceAll(someText+plainEnd, "\n", "\r\n"), true, ""},
		"a finish reason beside the last text": {`data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"STOP"}]}` + "\n", true, ""},
		"a finish reason without a line's end": {someText + strings.TrimSpace(plainEnd), false, ""},
		"a clean end":                          {someText, true, messageBrokeOff},
		"a cut":                                {someText, false, messageBrokeOff},
		"half an event, a clean end":           {someText + someText[:40], true, messageBrokeOff},
		"half an event, a cut":                 {someText + someText[:40], false, messageBrokeOff},
		"an empty finish reason":               {someText + strings.Replace(plainEnd, "stop", "", 1), true, messageBrokeOff},
		"another choice's finish reason":       {someText + strings.Replace(plainEnd, `"index":0`, `"index":1`, 1), true, messageBrokeOff},
		"the finish reason error":              {someText + strings.Replace(plainEnd, "stop", "error", 1), true, messageFailed},
		"an error, no blank line, no end":      {someText + `data: {"error":{"message":"Hi"}}`, true, messageFailed},
		"an error whose key is not first":      {someText + `data: {"id":"x","error":{"message":"Hi"}}` + "\n", true, messageFailed},
		"an error that is a string":            {someText + `data: {"error":"Hi"}` + "\n", true, messageFailed},
		"an error beside a finish reason":      {someText + `data: {"error":{},"choices":[{"index":0,"finish_reason":"stop"}]}` + "\n", true, messageFailed},
		"an error, then done":                  {someText + "data: {\"error\":{\"message\":\"Hi\"}}\n\ndata: [DONE]\n\n", true, messageFailed},
		"an event called error":                {someText + "event: error\ndata: {\"message\":\"Hi\"}\n\ndata: [DONE]\n\n", true, messageFailed},
		"vLLM's old error, then done":          {someText + "data: {\"object\":\"error\",\"message\":\"Hi\"}\n\ndata: [DONE]\n\n", true, messageFailed},
		"the conversation grew too long":       {someText + `data: {"error":{"type":"exceed_context_size_error"}}` + "\n", true, messageTooLong},
		"no JSON":                              {someText + "data: oops\n\n" + plainEnd, true, messageUnreadable},
		"content that is no text":              {someText + `data: {"choices":[{"index":0,"delta":{"content":[]}}]}` + "\n", true, messageUnreadable},
		"a line over the bound":                {someText + "data: " + big + "\n" + plainEnd, true, messageTooLarge},
		"a long line":                          {someText + ": " + big[:maxLine-10] + "\n" + plainEnd, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, text := pumped(answering(t, chunked(test.body, test.ended)))
			if text != "Hello" && !strings.Contains(name, "beside the last") {
				t.Errorf("the text is %q", text)
			}
			if test.message != "" {
				wantFailed(t, outcome, test.message)
				wantNoProviderText(t, outcome.Err, test.body)
			} else if outcome.State != stream.Completed {
				t.Errorf("%s, %v", outcome.State, outcome.Err)
			}
		})
	}
}

func TestGenerate_NotAStream_Fails(t *testing.T) {
	html := "<html><body>It works!</body></html>"
	for name, test := range map[string]struct{ wire, message string }{
		"empty":              {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", messageNoAnswer},
		"HTML":               {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(html), html), messageNoAnswer},
		"a redirect":         {"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", messageRefused},
		"no content":         {"HTTP/1.1 204 No Content\r\n\r\n", messageRefused},
		"no HTTP":            {"220 mail.example.org ESMTP secretword\r\n", messageUnreachable},
		"a malformed header": {"HTTP/1.1 200 OK\r\nsecretword\r\n\r\n", messageUnreachable},
		"a malformed chunk":  {okHead + "secretword\r\n", messageBrokeOff},
		"a cut in the head":  {"HTTP/1.1 200 OK\r\nContent-", messageUnreachable},
		"nothing":            {"", messageUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, text := pumped(answering(t, []byte(test.wire)))
			wantFailed(t, outcome, test.message)
			if outcome.Err != nil {
				wantNoProviderText(t, outcome.Err, strings.TrimPrefix(test.wire, "HTTP/1.1 200 OK"))
			}
			if text != "" {
				t.Errorf("the text is %q", text)
			}
		})
	}
}

// tail returns the text of the Python bytes literal that follows a label in a file of testdata.
func tail(t *testing.T, name, label string) string {
	t.Helper()
	file, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(regexp.QuoteMeta(label) + `.*tail:? b'(.*)'`).FindSubmatch(file)
	if m == nil {
		t.Fatalf("no %q", label)
	}
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(string(m[1]))
}

func TestGenerate_OllamaRunnerKilled_Fails(t *testing.T) {
	begun := load(t, "ollama/03-stream.txt")
	begun.body = begun.body[:strings.Index(string(begun.body), `data: {"id":"chatcmpl-557","object":"chat.completion.chunk","created":1795253164,"model":"stories","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":""}`)]
	writes := begun.pieces()
	writes = writes[:len(writes)-1] // without the final chunk: an error follows
	killed := tail(t, "ollama/50-timing-abort-parallel-signals.txt", "runner killed mid-stream")
	_, last, _ := strings.Cut(killed, "\r\nd6\r\n")
	if !strings.Contains(last, `"model":""`) || !strings.HasSuffix(last, "0\r\n\r\n") {
		t.Fatalf("unexpected capture: %q", last)
	}
	writes = append(writes, []byte("d6\r\n"+last))
	outcome, text := pumped(answering(t, writes...))
	wantFailed(t, outcome, messageBrokeOff)
	if text != "Anna liked" {
		t.Errorf("the text is %q", text)
	}
}

func TestGenerate_ServerDiesMidStream_Fails(t *testing.T) {
	for _, server := range []string{"llama-server", "ollama"} {
		c := load(t, server+"/04-stream-usage.txt")
		writes := c.pieces(strings.Index(string(c.body), `"finish_reason":"length"`) - 200)
		want := c.expected(t)
		outcome, text := pumped(answering(t, writes[0], writes[1])) // without the rest and the final chunk
		wantFailed(t, outcome, messageBrokeOff)
		if !strings.HasPrefix(want.text, text) || text == "" {
			t.Errorf("the text is %q, want the beginning of %q", text, want.text)
		}
		if !errors.Is(outcome.Err, io.ErrUnexpectedEOF) && !errors.Is(outcome.Err, syscall.ECONNRESET) {
			t.Errorf("the cause is %v", outcome.Err.Cause)
		}
	}
}

func TestUsage_Several_LastNonZeroWins(t *testing.T) {
	zero := `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}` + "\n"
	early := `data: {"choices":[{"index":0,"delta":{"content":"!"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}` + "\n"
	for _, body := range []string{
		zero + early + someText + plainEnd + lastUse + zero + "data: [DONE]\n",
		someText + early + lastUse + plainEnd,
	} {
		result, _, err := readAnswer(strings.NewReader(body))
		if err != nil || result.Usage == nil || *result.Usage != (stream.Usage{Prompt: 7, Completion: 2}) {
			t.Errorf("%v, %v", result.Usage, err)
		}
	}
	result, _, err := readAnswer(strings.NewReader(early + "data: {\"error\":{}}\n"))
	if err == nil || result.Usage == nil {
		t.Errorf("usage beside an error: %v, %v", result.Usage, err)
	}
}

func TestFinishReason_NotAnIdentifier_Other(t *testing.T) {
	for word, want := range map[string]string{"stop": "stop", "MAX_TOKENS": "max_tokens", "the model had enough": "other"} {
		result, _, err := readAnswer(strings.NewReader(strings.Replace(plainEnd, "stop", word, 1)))
		if err != nil || result.FinishReason != want {
			t.Errorf("%s: %q, %v", word, result.FinishReason, err)
		}
	}
}

func TestGenerate_KeepAlives_EmptyWrites(t *testing.T) {
	body := ":\n\n: OPENROUTER PROCESSING\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Let me think\"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"Not this\"}}]}\n\n" + someText + plainEnd
	var written []string
	a := testAnswer(strings.NewReader(body), func(delta []byte) { written = append(written, string(delta)) })
	if err := a.read(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(written, "|"); got != "|||||Hello|" {
		t.Errorf("wrote %q", got)
	}
}

func TestGenerate_LongLines_ReadWhole(t *testing.T) {
	var body, want strings.Builder
	for _, size := range []int{10, lineBuffer, 3*lineBuffer + 1, lineBuffer - 1, 100_000, 5} {
		content := strings.Repeat("0123456789", size/10)
		want.WriteString(content)
		body.WriteString(strings.Replace(someText, "Hello", content, 1))
	}
	if _, text, err := readAnswer(strings.NewReader(body.String() + plainEnd)); err != nil || text != want.String() {
		t.Errorf("read %d bytes, want %d; error %v", len(text), want.Len(), err)
	}
}

func TestGenerate_EndlessRefusal_ReadInPart(t *testing.T) {
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		_, err := io.WriteString(w, "HTTP/1.1 400 Bad Request\r\n\r\n")
		for err == nil {
			_, err = w.Write(make([]byte, maxErrorBody))
		}
	})
	outcome, _ := pumped(open(t, server.url()))
	wantFailed(t, outcome, messageRefused)
}

func TestGenerate_EndlessResponse_TooLarge(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(someText), endlessComments{})
	_, text, err := readAnswer(endless)
	if !errors.Is(err, errTooLarge) || text != "Hello" {
		t.Errorf("%q, %v", text, err)
	}
}

type endlessComments struct{}

func (endlessComments) Read(p []byte) (int, error) {
	return copy(p, ": "+strings.Repeat("comment", 200)+"\n"), nil
}

func TestGenerate_NoServer_Unreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	outcome, _ := pumped(withoutRetries(open(t, "http://"+listener.Addr().String()+"/v1")))
	wantFailed(t, outcome, messageUnreachable)
	if !errors.Is(outcome.Err, syscall.ECONNREFUSED) {
		t.Errorf("the cause is %v", outcome.Err.Cause)
	}
}

func TestGenerate_ContextEnded_ReturnsItsError(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := open(t, "http://127.0.0.1:1/v1").Generate(ctx, hello, func([]byte) {})
	if err != context.Canceled {
		t.Errorf("%v", err)
	}
}
