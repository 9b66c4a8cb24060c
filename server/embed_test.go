package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
	"parley/stream"
	"parley/stream/openai"
)

// topicEmbedder is an embedding model that maps a few words to topics.
type topicEmbedder struct {
	kept chan []conversation.ExchangeVector // receives vectors after the store has written them
}

func newTopicEmbedder() *topicEmbedder {
	return &topicEmbedder{kept: make(chan []conversation.ExchangeVector, 100)}
}

func (*topicEmbedder) Name() string { return "meanings" }

func (*topicEmbedder) Embed(_ context.Context, texts []string) (stream.Embeddings, error) {
	found := stream.Embeddings{Tokens: len(texts)}
	for _, text := range texts {
		found.Vectors = append(found.Vectors, topicVector(text))
	}
	return found, nil
}

// topicVector returns the vector of a text: 1 for each topic that the text mentions, then 0.1, so that no vector is zero.
func topicVector(text string) []float32 {
	v := []float32{0, 0, 0, 0, 0, 0, 0.1}
	for i, words := range []string{"rules", "lighthouse vessels beacons", "passwords", "weather", "dinner", "music"} {
		for word := range strings.FieldsSeq(words) {
			if strings.Contains(text, word) {
				v[i] = 1
			}
		}
	}
	return v
}

// option makes a server use m, and a store that sends stored vectors to m.kept.
func (m *topicEmbedder) option(_ *server.Options, o *service.Options) {
	o.Embedder, o.Store = m, vectorNotifier{o.Store, m.kept}
}

// vectorNotifier is a store that sends vectors to a channel after it has stored them.
type vectorNotifier struct {
	conversation.Store
	kept chan []conversation.ExchangeVector
}

func (s vectorNotifier) SetVectors(ctx context.Context, owner conversation.Owner, sessionID string, vectors []conversation.ExchangeVector) error {
	err := s.Store.SetVectors(ctx, owner, sessionID, vectors)
	if err == nil {
		s.kept <- vectors
	}
	return err
}

// topicChat is a session with a window of 300 tokens. The window holds three exchanges of talk and a question.
type topicChat struct {
	*parley
	model   *directed
	session string
}

func newTopicChat(p *parley, model *directed, policy string) *topicChat {
	return &topicChat{p, model, p.windowed(300, policy)}
}

// subjects are the messages for talk. Each message begins with the word for its topic.
var subjects = []string{
	"rules here: nobody reads them anyway", "lighthouse keepers warn the ships at night", "passwords are kept in the red drawer",
	"weather is nice today so they say", "dinner is at eight in the evening", "music is played by a small orchestra",
}

// talk sends a message with these words and returns the reply. The exchange takes 60 tokens.
func (n *topicChat) talk(words string) message {
	n.t.Helper()
	first, _, _ := strings.Cut(words, " ")
	reply := "to-" + first
	_, m := n.exchange(n.model, n.session, reply+strings.Repeat(" ", 128-len(reply)), words+strings.Repeat(" ", 80-len(words)))
	return m
}

// ask sends a question about lighthouses that shares no word with earlier messages. It returns the first word of each message in
// the prompt, and the method by which the window compared messages.
func (n *topicChat) ask() (first string, similarity any) {
	n.t.Helper()
	c, reply := n.exchange(n.model, n.session, "none", "Which vessels do beacons help?"+strings.Repeat(" ", 10))
	return firstWords(c), reply.Context["similarity"]
}

// ask returns byMeaning if the window compares embeddings, and byWords if the window compares only words.
const (
	byMeaning = "lighthouse to-lighthouse dinner to-dinner music to-music Which"
	byWords   = "weather to-weather dinner to-dinner music to-music Which"
)

// TestSemantic_Embeddings_SimilarExchangesInPrompt uses an HTTP server as the provider of embeddings.
func TestSemantic_Embeddings_SimilarExchangesInPrompt(t *testing.T) {
	m, model := newTopicEmbedder(), newDirected()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/v1/embeddings" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		found, _ := m.Embed(r.Context(), asked.Input)
		data := make([]map[string]any, len(found.Vectors))
		for i, v := range found.Vectors {
			data[i] = map[string]any{"index": i, "embedding": v}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "usage": map[string]int{"prompt_tokens": 7}})
	}))
	defer provider.Close()
	embedder := openai.NewEmbedder(openai.Options{BaseURL: provider.URL + "/v1", Name: "meanings"})
	defer embedder.Close()
	metrics := server.NewMetrics()
	p := start(t, model, m.option, func(o *server.Options, c *service.Options) {
		o.Metrics, c.Embedder = metrics, metrics.Embedder(embedder)
	})
	n := newTopicChat(p, model, "semantic")
	for _, words := range subjects {
		if reply := n.talk(words); reply.Context["similarity"] != nil && reply.Context["similarity"] != "embeddings" {
			t.Errorf("%s: %v", words, reply.Context)
		}
		if kept := within(t, "the vector of the exchange", m.kept); len(kept) != 1 {
			t.Errorf("%d vectors were stored", len(kept))
		}
	}
	before := p.snapshot(n.session)
	dry := decodeInto[previewed](t, p.call("POST", "/v1/sessions/"+n.session+"/context", content("Which vessels do beacons help?"+strings.Repeat(" ", 10))))
	if got := dry.kept(t, p.history(n.session)); got+" Which" != byMeaning || dry.Context["similarity"] != "embeddings" || p.snapshot(n.session) != before {
		t.Errorf("the dry run keeps %q, with the context %v", got, dry.Context)
	}
	if got, similarity := n.ask(); got != byMeaning || similarity != "embeddings" {
		t.Errorf("the model got %q, compared by %v", got, similarity)
	}
	within(t, "the vector of the question", m.kept)
	a := p.call("GET", "/metrics", nil, "Authorization", "")
	for _, line := range []string{`parley_embedding_calls_total{ending="completed"} `, `parley_embedding_tokens_total `} {
		if !strings.Contains(a.raw, line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

// TestSemantic_EmbedderHangs_ModelCalledAfter200ms uses an HTTP server that does not respond to /v1/embeddings. The model must be
// called after 200 ms, without embeddings.
func TestSemantic_EmbedderHangs_ModelCalledAfter200ms(t *testing.T) {
	m, model := newTopicEmbedder(), newDirected()
	hangs, release := make(chan struct{}), make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(hangs)
		select {
		case <-r.Context().Done(): // the client gave up
		case <-release:
		}
	}))
	defer provider.Close()
	defer close(release)
	embedder := openai.NewEmbedder(openai.Options{BaseURL: provider.URL + "/v1", Name: m.Name()})
	defer embedder.Close()
	var switched atomicEmbedder
	working := stream.Embedder(m)
	switched.Store(&working)
	n := newTopicChat(start(t, model, m.option, func(_ *server.Options, c *service.Options) { c.Embedder = &switched }), model, "semantic")
	for _, words := range subjects {
		n.talk(words)
		within(t, "the vector of the exchange", m.kept)
	}
	hanging := stream.Embedder(embedder)
	switched.Store(&hanging)
	began := time.Now()
	answered := n.later("POST", messages(n.session), content("Which vessels do beacons help?"+strings.Repeat(" ", 10)))
	within(t, "the embedder's call", hangs)
	c := model.next(t)
	took := time.Since(began)
	t.Logf("the model was called %v after the send", took.Round(time.Millisecond))
	if got := firstWords(c); got != byWords || took < 200*time.Millisecond {
		t.Errorf("after %v the model got %q", took, got)
	}
	switched.Store(&working)
	c.end()
	within(t, "the response", answered)
}

// countingEmbedder counts the calls that embed a message that begins with "question".
type countingEmbedder struct {
	*topicEmbedder
	calls atomic.Int64
}

func (e *countingEmbedder) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	if len(texts) == 1 && strings.HasPrefix(texts[0], "question") {
		e.calls.Add(1)
	}
	return e.topicEmbedder.Embed(ctx, texts)
}

// TestPreview_Embeddings_LimitedByTokens uses a key that may only read messages. Each dry run of the test has 100 tokens, and the
// account has 5,000 tokens a minute.
func TestPreview_Embeddings_LimitedByTokens(t *testing.T) {
	m, model := &countingEmbedder{topicEmbedder: newTopicEmbedder()}, newDirected()
	p := start(t, model, m.option, func(_ *server.Options, c *service.Options) { c.Embedder = m },
		withTiers(t, `{"pro":{"tokensPerMinute":5000,"requestsPerMinute":1000}}`))
	n := newTopicChat(p, model, "semantic")
	for _, words := range subjects {
		n.talk(words)
		within(t, "the vector of the exchange", m.kept)
	}
	reader := []string{"Authorization", "Bearer " + p.key("default", auth.ReadMessages)}
	passed, last := int64(0), answer{}
	for range 100 {
		last = p.call("POST", "/v1/sessions/"+n.session+"/context", content("question"+strings.Repeat(" why", 98)), reader...)
		if last.status != 200 {
			break
		}
		passed++
	}
	checkError(t, last, 429, "rate_limit_exceeded", "", "limit")
	if last.body["error"].(map[string]any)["limit"] != "tokensPerMinute" || passed < 10 || passed > 50 || m.calls.Load() != passed {
		t.Errorf("%d dry runs passed and embedded %d texts, then %s", passed, m.calls.Load(), last.raw)
	}
}

// atomicEmbedder is an embedder that a test can replace while a server uses it.
type atomicEmbedder struct {
	atomic.Pointer[stream.Embedder]
}

func (e *atomicEmbedder) Name() string { return (*e.Load()).Name() }

func (e *atomicEmbedder) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	return (*e.Load()).Embed(ctx, texts)
}
