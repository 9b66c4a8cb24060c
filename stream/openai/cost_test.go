package openai

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"parley/stream"
)

// fixedTransport returns the same response to each request, without a network. The number of its allocations does not
// depend on the length of the response.
type fixedTransport struct{ body []byte }

func (c fixedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c.body)), Request: r}, nil
}

// answerOf returns a response with n tokens. Their events are copies of an event that the real server has sent. Every tenth
// token has escape sequences.
func answerOf(t testing.TB, server string, n int) []byte {
	var token string
	for _, line := range load(t, server+"/04-stream-usage.txt").lines() {
		if strings.Contains(line, `"content":"e"`) || strings.Contains(line, `"content":"a"`) {
			token = line + "\n\n"
		}
	}
	if token == "" {
		t.Fatal("the capture contains no event with the text e or a")
	}
	ten := strings.Repeat(token, 9) + strings.NewReplacer(`:"e"`, `:"\n\u00e9"`, `:"a"`, `:"\n\u00e9"`).Replace(token)
	return []byte(strings.Repeat(ten, n/10) + plainEnd + lastUse + "data: [DONE]\n\n")
}

// allocations returns the number of allocations for a reply with that number of tokens.
func allocations(t testing.TB, server string, tokens int) float64 {
	model := newModel(Options{Name: "stories"}, fixedTransport{answerOf(t, server, tokens)})
	n := 0
	write := func(delta []byte) { n += len(delta) }
	return testing.AllocsPerRun(10, func() {
		if _, err := model.Generate(context.Background(), hello, write); err != nil {
			t.Fatal(err)
		}
	})
}

func TestGenerate_FewAllocationsPerToken(t *testing.T) {
	for _, server := range []string{"llama-server", "ollama"} {
		short, long := allocations(t, server, 1000), allocations(t, server, 6000)
		t.Logf("%s: %.0f allocations for a reply of 1,000 tokens, %.0f for a reply of 6,000 tokens", server, short, long)
		// The whole path of a token through the server may cost 0.1 allocations. This package may use a small part of that.
		if each := (long - short) / 5000; each > 0.005 {
			t.Errorf("%s: %.3f allocations per token, want at most 0.005", server, each)
		}
	}
}

// longPrompt returns a request with 101 messages.
func longPrompt() stream.Request {
	r := stream.Request{MaxTokens: 64}
	for range 101 {
		r.Messages = append(r.Messages, stream.PromptMessage{Role: "user", Content: strings.Repeat("Once upon a time ", 20)})
	}
	return r
}

// The count includes no allocations of a network connection, because fixedTransport has none.
func TestGenerate_AllocationsPerReply_AtMost30(t *testing.T) {
	model := newModel(Options{Name: "stories"}, fixedTransport{answerOf(t, "ollama", 50)})
	configured := longPrompt()
	temperature, seed := 0.7, int64(7)
	configured.Temperature, configured.TopP, configured.Seed = &temperature, &temperature, &seed
	configured.Stop, configured.ReasoningEffort = []string{strings.Repeat("a", 256), "\n"}, "low"
	prompts := map[string]stream.Request{"short prompt": hello, "prompt of 101 messages": longPrompt(), "with parameters": configured}
	for name, prompt := range prompts {
		n := testing.AllocsPerRun(20, func() {
			if _, err := model.Generate(t.Context(), prompt, func([]byte) {}); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %.0f allocations", name, n)
		if n > 30 {
			t.Errorf("%s: %.0f allocations, want at most 30", name, n)
		}
	}
}

func BenchmarkToken(b *testing.B) {
	for _, server := range []string{"llama-server", "ollama"} {
		data, _ := bytes.CutPrefix(answerOf(b, server, 10), []byte("data: "))
		data, _, _ = bytes.Cut(data, []byte("\n"))
		b.Run("scanned/"+server, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := scanChunk(data); !ok {
					b.Fatal("scanChunk did not accept the event")
				}
			}
		})
		b.Run("decoded/"+server, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decodeChunk(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("in a response/"+server, func(b *testing.B) {
			const tokens = 1000
			model := newModel(Options{Name: "stories"}, fixedTransport{answerOf(b, server, tokens)})
			for b.Loop() {
				if _, err := model.Generate(b.Context(), hello, func([]byte) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokens, "ns/token")
		})
	}
}

func BenchmarkGenerate(b *testing.B) {
	for name, prompt := range map[string]stream.Request{"short": hello, "long": longPrompt()} {
		b.Run(name+" prompt", func(b *testing.B) {
			model := newModel(Options{Name: "stories"}, fixedTransport{answerOf(b, "ollama", 50)})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := model.Generate(b.Context(), prompt, func([]byte) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
