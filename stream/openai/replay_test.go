package openai

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

// checkReplies requests one reply for each response, and calls check with the outcome and the text. A response is a list of
// writes.
func checkReplies(t *testing.T, responses [][][]byte, check func(outcome stream.Outcome, text string)) {
	t.Helper()
	server := serveRaw(t, func(n int, w net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, piece := range responses[n-1] {
			_, _ = w.Write(piece)
		}
	})
	model := open(t, server.url())
	for i := range responses {
		outcome, text := pumped(model)
		check(outcome, text)
		if t.Failed() {
			t.Fatalf("the reply to response %d of %d is wrong", i+1, len(responses))
		}
	}
}

// cuttings returns seven ways to cut body, each as a list of offsets: no cut, a cut after each byte, a cut after each line,
// and four times random cuts.
func cuttings(body []byte) (all [][]int) {
	every := make([]int, 0, len(body))
	lines := []int{}
	for i := 1; i < len(body); i++ {
		every = append(every, i)
		if body[i-1] == '\n' {
			lines = append(lines, i)
		}
	}
	all = append(all, nil, every, lines)
	random := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		var cuts []int
		for at := 0; ; {
			if at += 1 + random.IntN(300); at >= len(body) {
				break
			}
			cuts = append(cuts, at)
		}
		all = append(all, cuts)
	}
	return all
}

func wantReply(t *testing.T, want expected, outcome stream.Outcome, text string) {
	t.Helper()
	got := expected{text: text, finish: outcome.Result.FinishReason, usage: outcome.Result.Usage, done: want.done}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(expected{})); diff != "" || outcome.State != stream.Completed {
		t.Errorf("the reply is %s, %v (-want +got):\n%s", outcome.State, outcome.Err, diff)
	}
}

func TestGenerate_RecordedResponseInPieces_SameReply(t *testing.T) {
	for _, c := range streams(t) {
		t.Run(c.name, func(t *testing.T) {
			want := c.expected(t)
			if want.text == "" || want.finish == "" || !want.done {
				t.Fatalf("unexpected capture: %+v", want)
			}
			var responses [][][]byte
			for _, cuts := range cuttings(c.body) {
				responses = append(responses, c.pieces(cuts...))
			}
			checkReplies(t, responses, func(outcome stream.Outcome, text string) { wantReply(t, want, outcome, text) })
		})
	}
}

func TestGenerate_SmallResponseInTwoPieces_SameReply(t *testing.T) {
	for _, name := range []string{"llama-server/30-http10.txt", "ollama/30-http10.txt", "ollama/26-raw-chunked.txt"} {
		t.Run(name, func(t *testing.T) {
			c := load(t, name)
			var responses [][][]byte
			want := c.expected(t)
			for at := 0; at < len(c.body); at += 2 {
				responses = append(responses, c.pieces(at))
			}
			checkReplies(t, responses, func(outcome stream.Outcome, text string) { wantReply(t, want, outcome, text) })
		})
	}
}

// cutReader returns at most one piece for each Read. Unlike a socket, it never joins two pieces.
type cutReader struct{ pieces [][]byte }

func (r *cutReader) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	if r.pieces[0] = r.pieces[0][n:]; len(r.pieces[0]) == 0 {
		r.pieces = r.pieces[1:]
	}
	return n, nil
}

// readAnswer parses the body of a response. It returns the result and the text of the reply.
func readAnswer(body io.Reader) (stream.Result, string, error) {
	var text bytes.Buffer
	a := testAnswer(body, func(delta []byte) { text.Write(delta) })
	err := a.read()
	return a.result, text.String(), err
}

func testAnswer(body io.Reader, write func([]byte)) *answer {
	return &answer{reader: bufio.NewReaderSize(body, lineBuffer), write: write, cancel: func() {}}
}

func TestAnswer_RecordedBodyInTwoReads_SameReply(t *testing.T) {
	for _, c := range streams(t) {
		if c.raw {
			continue
		}
		want := c.expected(t)
		step := 1 + len(c.body)/500 // about 500 cuts for each capture
		for at := 0; at < len(c.body); at += step {
			result, text, err := readAnswer(&cutReader{pieces: [][]byte{c.body[:at], c.body[at:]}})
			if err != nil || text != want.text || result.FinishReason != want.finish || !cmp.Equal(result.Usage, want.usage) {
				t.Fatalf("%s cut at %d: got %q, %+v, %v; want %+v", c.name, at, text, result, err, want)
			}
		}
	}
}

// utf8Answer returns a response and the text of its reply. The text has characters of every length in UTF-8, some of them
// escaped.
func utf8Answer() (body string, text string) {
	deltas := []string{`Grüße`, `, 世`, `界 🌍`, ` \u00e9\u4e16\ud83d\ude00`, `\\ \"q\" \/ \n\t`, ` 𝔘`}
	var b strings.Builder
	for _, d := range deltas {
		fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"finish_reason\":null}]}\n\n", d)
	}
	b.WriteString("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	return b.String(), "Grüße, 世界 🌍 é世😀\\ \"q\" / \n\t 𝔘"
}

func TestGenerate_ResponseCutInsideCharacters_SameText(t *testing.T) {
	body, want := utf8Answer()
	c := capture{head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", body: []byte(body)}
	var responses [][][]byte
	for at := range body {
		responses = append(responses, c.pieces(at))
	}
	responses = append(responses, c.pieces(cuttings(c.body)[1]...))
	checkReplies(t, responses, func(outcome stream.Outcome, text string) {
		wantReply(t, expected{text: want, finish: "stop"}, outcome, text)
	})
}

func TestGenerate_UnrequestedGzip_Decompressed(t *testing.T) {
	c := load(t, "ollama/04-stream-usage.txt")
	var zipped bytes.Buffer
	zip := gzip.NewWriter(&zipped)
	_, _ = zip.Write(c.body)
	_ = zip.Close()
	c.head = strings.Replace(c.head, "\r\n\r\n", "\r\nContent-Encoding: gzip\r\n\r\n", 1)
	want := c.expected(t)
	c.body = zipped.Bytes()
	brotli := c
	brotli.head = strings.Replace(c.head, "gzip", "br", 1)
	checkReplies(t, [][][]byte{c.pieces(), c.pieces(cuttings(c.body)[1]...)}, func(outcome stream.Outcome, text string) {
		wantReply(t, want, outcome, text)
	})
	checkReplies(t, [][][]byte{brotli.pieces()}, func(outcome stream.Outcome, _ string) {
		wantFailed(t, outcome, messageUnreadable)
	})
}

// wantFailed fails the test unless the reply failed with provider_error and that public message.
func wantFailed(t *testing.T, outcome stream.Outcome, message string) {
	t.Helper()
	if outcome.State != stream.Failed || outcome.Err == nil || outcome.Err.Message != message {
		t.Errorf("the reply is %s, %v; want failed, %s", outcome.State, outcome.Err, message)
		return
	}
	code := stream.CodeProviderError
	if message == messageTooLong && outcome.FirstTokenAt.IsZero() {
		code = stream.CodeContextTooLong
	}
	if outcome.Err.Code != code {
		t.Errorf("the error %v has the code %s, want %s", outcome.Err, outcome.Err.Code, code)
	}
}

func TestGenerate_Request_HasPromptKeyAndTokenLimit(t *testing.T) {
	c := load(t, "ollama/03-stream.txt")
	seen := make(chan string, 1)
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL, r.Header.Get("Authorization"), r.Header.Get("Accept-Encoding"), body)
		for _, piece := range c.pieces() {
			_, _ = w.Write(piece)
		}
	})
	if outcome, _ := pumped(open(t, server.url()+"/")); outcome.State != stream.Completed {
		t.Fatal(outcome)
	}
	want := `POST /v1/chat/completions Bearer sk-secret-key identity {"model":"stories","messages":[` +
		`{"role":"system","content":"You are a bard."},{"role":"user","content":"Once upon a time"}],` +
		`"max_tokens":64,"stream":true,"stream_options":{"include_usage":true}}`
	if got := <-seen; got != want {
		t.Errorf("got the request\n%s, want\n%s", got, want)
	}
}

func TestGenerate_PasswordInBaseURL_SentAsBasicAuth(t *testing.T) {
	seen := make(chan *http.Request, 1)
	server := serveRaw(t, func(_ int, w net.Conn, r *http.Request) {
		seen <- r
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+someText+plainEnd+"data: [DONE]\n\n")
	})
	model := New(Options{BaseURL: strings.Replace(server.url(), "http://", "http://somebody:secret@", 1), Name: "stories"})
	t.Cleanup(model.Close)
	if outcome, _ := pumped(model); outcome.State != stream.Completed {
		t.Fatal(outcome)
	}
	if user, password, _ := (<-seen).BasicAuth(); user != "somebody" || password != "secret" {
		t.Errorf("got the user %q and the password %q", user, password)
	}
}

// The library is the reference: its JSON and our JSON must have the same value.
func TestBody_AnyPrompt_SameAsLibrary(t *testing.T) {
	for _, maxTokens := range []int{0, 64} {
		for _, text := range []string{"Hello", `"\/<b>&amp;`, "\x00\n\r\t\u2028\x7f", "😀é", strings.Repeat("long ", 10_000)} {
			library := openai.ChatCompletionRequest{
				Model: "stories \"2\"", MaxCompletionTokens: maxTokens, Stream: true, StreamOptions: &openai.StreamOptions{IncludeUsage: true},
				Messages: []openai.ChatCompletionMessage{{Role: "system", Content: "x"}, {Role: "user", Content: text}},
			}
			request := stream.Request{
				MaxTokens: maxTokens, Messages: []stream.PromptMessage{{Role: "system", Content: "x"}, {Role: "user", Content: text}},
			}
			if maxTokens > 0 {
				temperature, topP, seed := 0.7, 0.25, int64(-1<<53)
				library.Temperature, library.TopP, library.Seed = 0.7, 0.25, new(int)
				*library.Seed, library.Stop, library.ReasoningEffort = int(seed), []string{text, "\n"}, "low"
				request.Temperature, request.TopP, request.Seed = &temperature, &topP, &seed
				request.Stop, request.ReasoningEffort = library.Stop, "low"
			}
			ours := New(Options{BaseURL: DefaultBaseURL, Name: library.Model}).body(request)
			encoded, err := json.Marshal(library)
			var want, got any
			if err = errors.Join(err, json.Unmarshal(encoded, &want), json.Unmarshal(ours, &got)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("our request (+) differs from the library's (-):\n%s", diff)
			}
		}
	}
}

func TestBody_OpenAIModel_HasMaxCompletionTokens(t *testing.T) {
	for _, test := range []struct {
		url, model string
		openAI     bool // the request must have max_completion_tokens instead of max_tokens
	}{
		{"", "gpt-4o", true},
		{"https://api.openai.com/v1", "whatever", true},
		{"https://us.openai.azure.com/openai/v1", "our-deployment", true},
		{"http://127.0.0.1:4000/v1", "gpt-5-mini", true},
		{"http://127.0.0.1:4000/v1", "o3", true},
		{"http://127.0.0.1:11434/v1", "llama3.2:latest", false},
		{"https://api.openai.com.example.org/v1", "mistral", false},
		{"http://127.0.0.1:11434/v1", "gpt-oss:20b", false},
	} {
		body := string(New(Options{BaseURL: test.url, Name: test.model}).body(stream.Request{MaxTokens: 100}))
		newer, older := strings.Contains(body, `"max_completion_tokens":100,`), strings.Contains(body, `"max_tokens":100,`)
		if newer != test.openAI || older == test.openAI {
			t.Errorf("%s at %s: got the request %s; want a model of OpenAI: %v", test.model, test.url, body, test.openAI)
		}
	}
}

func TestModel_Printed_HidesKey(t *testing.T) {
	m := New(Options{Key: "sk-secret-key", Name: "stories"})
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if printed := fmt.Sprintf(format, m); strings.Contains(printed, "secret") {
			t.Errorf("%s prints %s", format, printed)
		}
	}
}
