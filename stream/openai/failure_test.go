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

// modelWithResponse returns a model without retries. Its server writes the same response to each request.
func modelWithResponse(t *testing.T, writes ...[]byte) *Model {
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, piece := range writes {
			_, _ = w.Write(piece)
		}
	})
	return withoutRetries(open(t, server.url()))
}

// wantNoProviderText fails the test if the error or its cause contains the key, a prompt, or a word of the response sent.
// The value of a field type or code is allowed.
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

func TestGenerate_RecordedErrors_QuoteNoProviderText(t *testing.T) {
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
		"llama-server/11-empty-messages":       messageNoAnswer, // from here on, the status is 200
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
			outcome, text := pumped(modelWithResponse(t, c.pieces()...))
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

func TestDoubtful_EachFailure(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no failure":             {nil, false},
		"stopped":                {context.Canceled, false},
		"too long":               {tooLong(&cause{status: 500}, overflow{}), false},
		"no connection":          {unreachable(io.EOF), true},
		"an unknown failure":     {&stream.ModelError{Code: stream.CodeProviderError}, true},
		"an error in the answer": {failure(messageFailed, &cause{}), true},
		"400":                    {failure(messageRefused, &cause{status: 400}), false},
		"401":                    {failure(messageCredentials, &cause{status: 401}), true},
		"403":                    {failure(messageCredentials, &cause{status: 403}), true},
		"404":                    {failure(messageUnknown, &cause{status: 404}), true},
		"408":                    {failure(messageDown, &cause{status: 408}), true},
		"413":                    {failure(messageRefused, &cause{status: 413}), false},
		"422":                    {failure(messageRefused, &cause{status: 422}), false},
		"429":                    {failure(messageBusy, &cause{status: 429}), false},
		"500":                    {failure(messageDown, &cause{status: 500}), true},
	} {
		if got := Doubtful(test.err); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestGenerate_ErrorResponse_CauseNamesCodeOrType(t *testing.T) {
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
		outcome, _ := pumped(modelWithResponse(t, []byte(head+test.body)))
		if outcome.Err == nil || outcome.Err.Error() != test.want {
			t.Errorf("%.80s: got %v, want %s", test.body, outcome.Err, test.want)
		}
	}
}

const (
	okHead   = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	plainEnd = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	someText = `data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}` + "\n\n"
	lastUse  = `data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}` + "\n\n"
)

// chunked returns a response with text as one chunk. If ended is true, the final chunk follows. Otherwise, the connection
// breaks after text.
func chunked(text string, ended bool) []byte {
	wire := fmt.Appendf([]byte(okHead), "%x\r\n%s\r\n", len(text), text)
	if ended {
		wire = append(wire, "0\r\n\r\n"...)
	}
	return wire
}

func TestGenerate_SucceedsOnlyAfterFinishReasonOrDone(t *testing.T) {
	big := strings.Repeat("x", maxLine)
	for name, test := range map[string]struct {
		body    string
		ended   bool   // false: the connection breaks after body
		message string // the message of the error; "" means success
	}{
		"succeeds: finish reason":                           {someText + plainEnd, true, ""},
		"succeeds: finish reason, usage, broken connection": {someText + plainEnd + lastUse, false, ""},
		"succeeds: finish reason, broken connection":        {someText + plainEnd, false, ""},
		"succeeds: finish reason, then invalid JSON":        {someText + plainEnd + "data: {{\n", true, ""},
		"succeeds: finish reason, then an error":            {someText + plainEnd + "data: {\"error\":{}}\n", true, ""},
		"succeeds: [DONE]":                                  {someText + "data: [DONE]\n\n", true, ""},
		"succeeds: [DONE] without a line end":               {someText + "data: [DONE]", true, ""},
		"succeeds: [DONE] without a space":                  {someText + "data:[DONE]\n", true, ""},
		"succeeds: lines end with CR LF":                    {strings.ReplaceAll(someText+plainEnd, "\n", "\r\n"), true, ""},
		"succeeds: finish reason and text in one event":     {`data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"STOP"}]}` + "\n", true, ""},
		"succeeds: finish reason without a line end":        {someText + strings.TrimSpace(plainEnd), false, ""},
		"fails: no finish reason":                           {someText, true, messageBrokeOff},
		"fails: no finish reason, broken connection":        {someText, false, messageBrokeOff},
		"fails: half an event":                              {someText + someText[:40], true, messageBrokeOff},
		"fails: half an event, broken connection":           {someText + someText[:40], false, messageBrokeOff},
		"fails: empty finish reason":                        {someText + strings.Replace(plainEnd, "stop", "", 1), true, messageBrokeOff},
		"fails: finish reason of another choice":            {someText + strings.Replace(plainEnd, `"index":0`, `"index":1`, 1), true, messageBrokeOff},
		"fails: finish reason is error":                     {someText + strings.Replace(plainEnd, "stop", "error", 1), true, messageFailed},
		"fails: error without a line end":                   {someText + `data: {"error":{"message":"Hi"}}`, true, messageFailed},
		"fails: error is not the first field":               {someText + `data: {"id":"x","error":{"message":"Hi"}}` + "\n", true, messageFailed},
		"fails: error is a string":                          {someText + `data: {"error":"Hi"}` + "\n", true, messageFailed},
		"fails: error and finish reason in one event":       {someText + `data: {"error":{},"choices":[{"index":0,"finish_reason":"stop"}]}` + "\n", true, messageFailed},
		"fails: error, then [DONE]":                         {someText + "data: {\"error\":{\"message\":\"Hi\"}}\n\ndata: [DONE]\n\n", true, messageFailed},
		"fails: event with the name error":                  {someText + "event: error\ndata: {\"message\":\"Hi\"}\n\ndata: [DONE]\n\n", true, messageFailed},
		"fails: error of an old vLLM, then [DONE]":          {someText + "data: {\"object\":\"error\",\"message\":\"Hi\"}\n\ndata: [DONE]\n\n", true, messageFailed},
		"fails: conversation too long for the model":        {someText + `data: {"error":{"type":"exceed_context_size_error"}}` + "\n", true, messageTooLong},
		"fails: invalid JSON":                               {someText + "data: oops\n\n" + plainEnd, true, messageUnreadable},
		"fails: content is not a string":                    {someText + `data: {"choices":[{"index":0,"delta":{"content":[]}}]}` + "\n", true, messageUnreadable},
		"fails: line over 1 MiB":                            {someText + "data: " + big + "\n" + plainEnd, true, messageTooLarge},
		"succeeds: comment of almost 1 MiB":                 {someText + ": " + big[:maxLine-10] + "\n" + plainEnd, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, text := pumped(modelWithResponse(t, chunked(test.body, test.ended)))
			if text != "Hello" {
				t.Errorf("the text is %q, want Hello", text)
			}
			if test.message != "" {
				wantFailed(t, outcome, test.message)
				wantNoProviderText(t, outcome.Err, test.body)
			} else if outcome.State != stream.Completed {
				t.Errorf("the reply is %s, %v; want completed", outcome.State, outcome.Err)
			}
		})
	}
}

func TestGenerate_NotAStream_Fails(t *testing.T) {
	html := "<html><body>It works!</body></html>"
	for name, test := range map[string]struct{ wire, message string }{
		"empty body":                           {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", messageNoAnswer},
		"HTML page":                            {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(html), html), messageNoAnswer},
		"redirect":                             {"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", messageRefused},
		"status 204":                           {"HTTP/1.1 204 No Content\r\n\r\n", messageRefused},
		"not HTTP":                             {"220 mail.example.org ESMTP secretword\r\n", messageUnreachable},
		"malformed header":                     {"HTTP/1.1 200 OK\r\nsecretword\r\n\r\n", messageUnreachable},
		"malformed chunk":                      {okHead + "secretword\r\n", messageBrokeOff},
		"incomplete headers":                   {"HTTP/1.1 200 OK\r\nContent-", messageUnreachable},
		"connection closed without a response": {"", messageUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, text := pumped(modelWithResponse(t, []byte(test.wire)))
			wantFailed(t, outcome, test.message)
			if outcome.Err != nil {
				wantNoProviderText(t, outcome.Err, strings.TrimPrefix(test.wire, "HTTP/1.1 200 OK"))
			}
			if text != "" {
				t.Errorf("the text is %q, want no text", text)
			}
		})
	}
}

// tail returns the last bytes of a response from a file of testdata. The file has them after label, as a bytes literal of
// Python.
func tail(t *testing.T, name, label string) string {
	t.Helper()
	file, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(regexp.QuoteMeta(label) + `.*tail:? b'(.*)'`).FindSubmatch(file)
	if m == nil {
		t.Fatalf("%s does not contain the label %q", name, label)
	}
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(string(m[1]))
}

func TestGenerate_OllamaRunnerKilled_Fails(t *testing.T) {
	begun := load(t, "ollama/03-stream.txt")
	begun.body = begun.body[:strings.Index(string(begun.body), `data: {"id":"chatcmpl-557","object":"chat.completion.chunk","created":1795253164,"model":"stories","system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":""}`)]
	writes := begun.pieces()
	writes = writes[:len(writes)-1] // drop the final chunk: the error event must come before the final chunk
	killed := tail(t, "ollama/50-timing-abort-parallel-signals.txt", "runner killed mid-stream")
	_, last, _ := strings.Cut(killed, "\r\nd6\r\n")
	if !strings.Contains(last, `"model":""`) || !strings.HasSuffix(last, "0\r\n\r\n") {
		t.Fatalf("unexpected capture: %q", last)
	}
	writes = append(writes, []byte("d6\r\n"+last))
	outcome, text := pumped(modelWithResponse(t, writes...))
	wantFailed(t, outcome, messageBrokeOff)
	if text != "Anna liked" {
		t.Errorf("the text is %q, want \"Anna liked\"", text)
	}
}

func TestGenerate_ServerDiesMidStream_FailsAndKeepsText(t *testing.T) {
	for _, server := range []string{"llama-server", "ollama"} {
		c := load(t, server+"/04-stream-usage.txt")
		writes := c.pieces(strings.Index(string(c.body), `"finish_reason":"length"`) - 200)
		want := c.expected(t)
		outcome, text := pumped(modelWithResponse(t, writes[0], writes[1])) // the end of the body is missing
		wantFailed(t, outcome, messageBrokeOff)
		if !strings.HasPrefix(want.text, text) || text == "" {
			t.Errorf("the text is %q, want the beginning of %q", text, want.text)
		}
		if !errors.Is(outcome.Err, io.ErrUnexpectedEOF) && !errors.Is(outcome.Err, syscall.ECONNRESET) {
			t.Errorf("the cause is %v, want an unexpected EOF or a connection reset", outcome.Err.Cause)
		}
	}
}

func TestUsage_InSeveralEvents_LastNonZeroReturned(t *testing.T) {
	zero := `data: {"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}` + "\n"
	early := `data: {"choices":[{"index":0,"delta":{"content":"!"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}` + "\n"
	for _, body := range []string{
		zero + early + someText + plainEnd + lastUse + zero + "data: [DONE]\n",
		someText + early + lastUse + plainEnd,
	} {
		result, _, err := readAnswer(strings.NewReader(body))
		if err != nil || result.Usage == nil || *result.Usage != (stream.Usage{Prompt: 7, Completion: 2}) {
			t.Errorf("got the usage %v, %v; want 7 and 2 tokens", result.Usage, err)
		}
	}
	result, _, err := readAnswer(strings.NewReader(early + "data: {\"error\":{}}\n"))
	if err == nil || result.Usage == nil {
		t.Errorf("usage, then an error: got the usage %v, error %v; want both", result.Usage, err)
	}
}

func TestFinishReason_NotAnIdentifier_BecomesOther(t *testing.T) {
	for word, want := range map[string]string{"stop": "stop", "MAX_TOKENS": "max_tokens", "the model had enough": "other"} {
		result, _, err := readAnswer(strings.NewReader(strings.Replace(plainEnd, "stop", word, 1)))
		if err != nil || result.FinishReason != want {
			t.Errorf("finish reason %q became %q, %v; want %q", word, result.FinishReason, err, want)
		}
	}
}

func TestAnswer_KeepAlive_CallsWriteWithoutText(t *testing.T) {
	body := ":\n\n: OPENROUTER PROCESSING\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n" +
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Let me think\"}}]}\n\n" +
		"data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"Not this\"}}]}\n\n" + someText + plainEnd
	var written []string
	a := testAnswer(strings.NewReader(body), func(delta []byte) { written = append(written, string(delta)) })
	if err := a.read(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(written, "|"), "|||||Hello|"; got != want {
		t.Errorf("the calls of write got %q, want %q", got, want)
	}
}

func TestAnswer_LongLines_TextComplete(t *testing.T) {
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

func TestGenerate_EndlessErrorResponse_Fails(t *testing.T) {
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		_, err := io.WriteString(w, "HTTP/1.1 400 Bad Request\r\n\r\n")
		for err == nil {
			_, err = w.Write(make([]byte, maxErrorBody))
		}
	})
	outcome, _ := pumped(open(t, server.url()))
	wantFailed(t, outcome, messageRefused)
}

func TestAnswer_EndlessResponse_FailsAsTooLarge(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(someText), endlessComments{})
	_, text, err := readAnswer(endless)
	if !errors.Is(err, errTooLarge) || text != "Hello" {
		t.Errorf("got the text %q, %v; want Hello, %v", text, err, errTooLarge)
	}
}

// TestAnswer_LargeEventsForEachCharacter_ReadToTheEnd reads a response of more than maxAnswer bytes, which has a character in
// each event.
func TestAnswer_LargeEventsForEachCharacter_ReadToTheEnd(t *testing.T) {
	event := `data: {"id":"` + strings.Repeat("x", 400) + `","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	n := maxAnswer/len(event) + 1
	_, text, err := readAnswer(io.MultiReader(strings.NewReader(strings.Repeat(event, n)), strings.NewReader(plainEnd)))
	if err != nil || len(text) != n {
		t.Errorf("got %d bytes of text, %v; want %d", len(text), err, n)
	}
}

// endlessComments is a body that consists of comment lines and never ends.
type endlessComments struct{}

func (endlessComments) Read(p []byte) (int, error) {
	return copy(p, ": "+strings.Repeat("comment", 200)+"\n"), nil
}

func TestGenerate_NoServer_FailsAsUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	outcome, _ := pumped(withoutRetries(open(t, "http://"+listener.Addr().String()+"/v1")))
	wantFailed(t, outcome, messageUnreachable)
	if !errors.Is(outcome.Err, syscall.ECONNREFUSED) {
		t.Errorf("the cause is %v, want %v", outcome.Err.Cause, syscall.ECONNREFUSED)
	}
}

func TestGenerate_ContextEnded_ReturnsContextError(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := open(t, "http://127.0.0.1:1/v1").Generate(ctx, hello, func([]byte) {})
	if err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
