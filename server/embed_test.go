package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
	"parley/stream"
	"parley/stream/openai"
)

// meanings is an embedding model that knows what a few words mean, whichever they are said in; what a test has it do instead,
// it does.
type meanings struct {
	mu      sync.Mutex
	name    string                                          // guarded by mu
	instead func(ctx context.Context, texts []string) error // guarded by mu; nil for nothing
	calls   [][]string                                      // guarded by mu
	kept    chan []conversation.ExchangeVector              // what was kept of it
}

func newMeanings() *meanings {
	return &meanings{name: "meanings", kept: make(chan []conversation.ExchangeVector, 100)}
}

func (m *meanings) Name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name
}

func (m *meanings) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	m.mu.Lock()
	m.calls = append(m.calls, texts)
	instead := m.instead
	m.mu.Unlock()
	if instead != nil {
		if err := instead(ctx, texts); err != nil {
			return stream.Embeddings{}, err
		}
	}
	found := stream.Embeddings{Tokens: len(texts)}
	for _, text := range texts {
		found.Vectors = append(found.Vectors, meaningOf(text))
	}
	return found, nil
}

// meaningOf is the vector of a text: whether it speaks of each of some things, and that it speaks.
func meaningOf(text string) []float32 {
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

// called returns the calls since the last time.
func (m *meanings) called() [][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

// option has a server use the model, and says what it has kept of it.
func (m *meanings) option(_ *server.Options, o *service.Options) {
	o.Embedder, o.Store = m, keeping{o.Store, m.kept}
}

// keeping is a store that tells of the vectors that it has kept.
type keeping struct {
	conversation.Store
	kept chan []conversation.ExchangeVector
}

func (s keeping) SetVectors(ctx context.Context, owner conversation.Owner, sessionID string, vectors []conversation.ExchangeVector) error {
	err := s.Store.SetVectors(ctx, owner, sessionID, vectors)
	if err == nil {
		s.kept <- vectors
	}
	return err
}

// nearby is the conversation of policy_test.go: a session whose window of 300 tokens holds three of its exchanges and the question.
type nearby struct {
	*parley
	model   *directed
	session string
}

func newNearby(p *parley, model *directed, policy string) *nearby {
	return &nearby{p, model, p.windowed(300, policy)}
}

var subjects = []string{
	"rules here: nobody reads them anyway", "lighthouse keepers warn the ships at night", "passwords are kept in the red drawer",
	"weather is nice today so they say", "dinner is at eight in the evening", "music is played by a small orchestra",
}

func (n *nearby) talk(words string) message {
	n.t.Helper()
	first, _, _ := strings.Cut(words, " ")
	reply := "to-" + first
	_, m := n.exchange(n.model, n.session, reply+strings.Repeat(" ", 128-len(reply)), words+strings.Repeat(" ", 80-len(words)))
	return m
}

// ask sends a question that speaks of lighthouses in no word that was said before, and returns what the model was asked.
func (n *nearby) ask() (first string, similarity any) {
	n.t.Helper()
	c, reply := n.exchange(n.model, n.session, "none", "Which vessels do beacons help?"+strings.Repeat(" ", 10))
	return firstWords(c), reply.Context["similarity"]
}

const (
	byMeaning = "lighthouse to-lighthouse dinner to-dinner music to-music Which"
	byWords   = "weather to-weather dinner to-dinner music to-music Which"
)

// TestWhatIsNearInMeaningReachesTheModel speaks with a model server's /embeddings over a socket.
func TestWhatIsNearInMeaningReachesTheModel(t *testing.T) {
	m, model := newMeanings(), newDirected()
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
	n := newNearby(p, model, "semantic")
	for _, words := range subjects {
		if reply := n.talk(words); reply.Context["similarity"] != nil && reply.Context["similarity"] != "embeddings" {
			t.Errorf("%s: %v", words, reply.Context)
		}
		if kept := within(t, "its vector", m.kept); len(kept) != 1 {
			t.Errorf("%d vectors were kept", len(kept))
		}
	}
	m.called()
	before := p.snapshot(n.session)
	dry := decodeInto[previewed](t, p.call("POST", "/v1/sessions/"+n.session+"/context", content("Which vessels do beacons help?"+strings.Repeat(" ", 10))))
	if got := dry.kept(t, p.history(n.session)); got+" Which" != byMeaning || dry.Context["similarity"] != "embeddings" || p.snapshot(n.session) != before {
		t.Errorf("the dry run keeps %q by %v", got, dry.Context)
	}
	if got, similarity := n.ask(); got != byMeaning || similarity != "embeddings" {
		t.Errorf("the model was asked %q, by %v", got, similarity)
	}
	within(t, "the vector of the question", m.kept)
	a := p.call("GET", "/metrics", nil, "Authorization", "")
	for _, line := range []string{`parley_embedding_calls_total{ending="completed"} `, `parley_embedding_tokens_total `} {
		if !strings.Contains(a.raw, line) {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

// TestAServerThatHangsOnEmbeddingsHoldsUpNoFirstToken is of a real server: after 200 ms the model is called all the same.
func TestAServerThatHangsOnEmbeddingsHoldsUpNoFirstToken(t *testing.T) {
	m, model := newMeanings(), newDirected()
	hangs, letGo := make(chan struct{}), make(chan struct{})
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(hangs)
		select {
		case <-r.Context().Done(): // given up
		case <-letGo:
		}
	}))
	defer provider.Close()
	defer close(letGo)
	embedder := openai.NewEmbedder(openai.Options{BaseURL: provider.URL + "/v1", Name: m.Name()})
	defer embedder.Close()
	var turning atomicEmbedder
	working := stream.Embedder(m)
	turning.Store(&working)
	n := newNearby(start(t, model, m.option, func(_ *server.Options, c *service.Options) { c.Embedder = &turning }), model, "semantic")
	for _, words := range subjects {
		n.talk(words)
		within(t, "its vector", m.kept)
	}
	hanging := stream.Embedder(embedder)
	turning.Store(&hanging)
	began := time.Now()
	answered := n.later("POST", messages(n.session), content("Which vessels do beacons help?"+strings.Repeat(" ", 10)))
	within(t, "the embedder's call", hangs)
	c := model.next(t)
	took := time.Since(began)
	t.Logf("the model was called %v after the send", took.Round(time.Millisecond))
	if got := firstWords(c); got != byWords || took < 200*time.Millisecond || took > 2*time.Second {
		t.Errorf("after %v the model was asked %q", took, got)
	}
	turning.Store(&working)
	c.end()
	within(t, "the answer", answered)
}

// atomicEmbedder is one embedder, then another.
type atomicEmbedder struct {
	atomic.Pointer[stream.Embedder]
}

func (e *atomicEmbedder) Name() string { return (*e.Load()).Name() }

func (e *atomicEmbedder) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	return (*e.Load()).Embed(ctx, texts)
}
