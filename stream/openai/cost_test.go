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

// cannedTransport returns the same response to each request, without a network. Its allocations do not depend on the
// length of the response.
type cannedTransport struct{ body []byte }

func (c cannedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(c.body)), Request: r}, nil
}

// answerOf returns a response of n tokens in the server's form. Every tenth token has an escape.
func answerOf(t testing.TB, server string, n int) []byte {
	var token string
	for _, line := range load(t, server+"/04-stream-usage.txt").lines() {
		if strings.Contains(line, `"content":"e"`) || strings.Contains(line, `"content":"a"`) {
			token = line + "\n\n"
		}
	}
	if token == "" {
		t.Fatal("no token in the capture")
	}
	ten := strings.Repeat(token, 9) + strings.NewReplacer(`:"e"`, `:"\n\u00e9"`, `:"a"`, `:"\n\u00e9"`).Replace(token)
	return []byte(strings.Repeat(ten, n/10) + plainEnd + lastUse + "data: [DONE]\n\n")
}

func allocations(t testing.TB, server string, tokens int) float64 {
	model := newModel(Options{Name: "stories"}, cannedTransport{answerOf(t, server, tokens)})
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
		t.Logf("%s: a reply of 1,000 tokens %.0f allocations, one of 6,000 %.0f", server, short, long)
		if each := (long - short) / 5000; each > 0.005 { // the whole path of a token through the server may cost 0.1 allocations
			t.Errorf("%s: %.3f allocations for each further token, want at most 0.005", server, each)
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
					b.Fatal("not scanned")
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
		b.Run("in an answer/"+server, func(b *testing.B) {
			const tokens = 1000
			model := newModel(Options{Name: "stories"}, cannedTransport{answerOf(b, server, tokens)})
			for b.Loop() {
				if _, err := model.Generate(b.Context(), hello, func([]byte) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokens, "ns/token")
		})
	}
}

func BenchmarkTurn(b *testing.B) {
	model := newModel(Options{Name: "stories"}, cannedTransport{answerOf(b, "ollama", 10)})
	b.ReportAllocs()
	for b.Loop() {
		if outcome, _ := pumped(model); outcome.State != stream.Completed {
			b.Fatal(outcome)
		}
	}
}
