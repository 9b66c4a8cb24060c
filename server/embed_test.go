package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// do has the model do something instead, from now on, and forget its calls.
func (m *meanings) do(instead func(ctx context.Context, texts []string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.instead, m.calls = instead, nil
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

func TestEmbeddingsAreAskedForOnlyWhereTheyCount(t *testing.T) {
	for name, test := range map[string]struct {
		policy      string
		compression bool
		want        int
	}{
		"fifo": {"fifo", true, 0}, "priority": {"priority", true, 0}, "semantic": {"semantic", true, 2}, "no compression": {"semantic", false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeanings()
				p := startPiped(t, echo, m.option)
				session := p.must("POST", "/v1/sessions", map[string]any{"userId": user, "contextConfig": map[string]any{
					"maxTokens": 4000, "retentionPolicy": test.policy, "compressionEnabled": test.compression,
				}})["sessionId"].(string)
				for _, text := range []string{"hello", "and again"} {
					reply := decodeInto[message](t, p.call("POST", messages(session), content(text)))
					synctest.Wait()
					if reply.Context["similarity"] != nil {
						t.Errorf("where all fits: %v", reply.Context)
					}
				}
				calls := m.called()
				if len(calls) != test.want {
					t.Errorf("the embedder was asked %q", calls)
				}
				if test.want > 0 && !slices.Equal(calls[0], []string{"hello\nYou said: hello"}) {
					t.Errorf("an exchange is embedded as %q", calls[0])
				}
			})
		})
	}
}

// TestATurnWaitsForAMeaningOnlySoLong has an embedding model that stops answering, and one that fails.
func TestATurnWaitsForAMeaningOnlySoLong(t *testing.T) {
	for name, test := range map[string]struct {
		instead func(ctx context.Context, texts []string) error
		waits   time.Duration
	}{
		"never answers": {func(ctx context.Context, _ []string) error { <-ctx.Done(); return ctx.Err() }, 200 * time.Millisecond},
		"fails at once": {func(context.Context, []string) error { return &stream.ModelError{Code: stream.CodeProviderError} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, model := newMeanings(), newDirected()
				n := newNearby(startPiped(t, model, m.option), model, "semantic")
				for _, words := range subjects {
					n.talk(words)
					synctest.Wait()
				}
				m.do(test.instead)
				began := time.Now()
				got, similarity := n.ask()
				if took := time.Since(began); took != test.waits || got != byWords || similarity != "words" {
					t.Errorf("after %v the model was asked %q, by %v", took, got, similarity)
				}
				time.Sleep(time.Minute) // of the bubble's own: what hung behind the reply is given up
				m.do(nil)
				began = time.Now()
				if _, similarity := n.ask(); similarity != "words" || time.Since(began) != 0 {
					t.Errorf("a turn after one that waited waits too: %v, by %v", time.Since(began), similarity)
				}
				synctest.Wait() // behind the reply, the model was found to be back
				if got, similarity := n.ask(); similarity != "embeddings" || !strings.HasPrefix(got, "lighthouse ") {
					t.Errorf("then it was asked %q, by %v", got, similarity)
				}
			})
		})
	}
}

// TestExchangesWithoutAVectorAreCaughtUpWith has a model that fails at first, and then another in its place.
func TestExchangesWithoutAVectorAreCaughtUpWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, model := newMeanings(), newDirected()
		n := newNearby(startPiped(t, model, m.option), model, "semantic")
		m.do(func(context.Context, []string) error { return errors.New("planted") })
		for _, words := range subjects {
			n.talk(words)
		}
		synctest.Wait()
		m.do(nil)
		if got, similarity := n.ask(); got != byWords || similarity != "words" {
			t.Errorf("without vectors the model was asked %q, by %v", got, similarity)
		}
		synctest.Wait()
		calls := m.called()
		if len(calls) != 1 || len(calls[0]) != 7 || !strings.HasPrefix(calls[0][0], "Which") || !strings.HasPrefix(calls[0][1], "music") || !strings.HasPrefix(calls[0][6], "rules") {
			t.Errorf("behind it, the embedder was asked %q", calls)
		}
		if _, similarity := n.ask(); similarity != "embeddings" {
			t.Errorf("with vectors it is %v", similarity)
		}
		synctest.Wait()
		m.called()
		m.mu.Lock()
		m.name = "others"
		m.mu.Unlock()
		if _, similarity := n.ask(); similarity != "words" {
			t.Errorf("with vectors of another model it is %v", similarity)
		}
		synctest.Wait()
		if calls := m.called(); len(calls) != 1 || len(calls[0]) != 9 {
			t.Errorf("behind it, the new model was asked %q", calls)
		}
		if _, similarity := n.ask(); similarity != "embeddings" {
			t.Errorf("with vectors of the new model it is %v", similarity)
		}
	})
}

// TestATextThatIsRefusedCostsTheNewestNoVector has a model that refuses any call with a certain text in it.
func TestATextThatIsRefusedCostsTheNewestNoVector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, model := newMeanings(), newDirected()
		n := newNearby(startPiped(t, model, m.option), model, "semantic")
		m.do(func(_ context.Context, texts []string) error {
			if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "password") }) {
				return &stream.ModelError{Code: stream.CodeProviderError, Message: "refused"}
			}
			return nil
		})
		for _, words := range subjects {
			n.talk(words)
			synctest.Wait()
		}
		m.called()
		n.ask()
		synctest.Wait()
		calls := m.called() // the question's, those without a vector together, the newest alone
		if len(calls) != 3 || len(calls[1]) != 2 || len(calls[2]) != 1 || !strings.HasPrefix(calls[2][0], "Which") {
			t.Errorf("the embedder was asked %q", calls)
		}
	})
}

func TestADrainEndsAnEmbedding(t *testing.T) {
	m := newMeanings()
	began := make(chan struct{}, 1)
	m.do(func(ctx context.Context, _ []string) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	p := start(t, echo, m.option)
	p.send(p.windowed(1000, "semantic"), "hello")
	within(t, "the embedding", began)
	p.handler.BeginDrain()
	drained := time.Now()
	if p.drain(context.Background()); time.Since(drained) > 5*time.Second {
		t.Errorf("the drain took %v", time.Since(drained))
	}
}

// TestAFailingEmbedderIsLoggedOnce also shows that the log holds no text.
func TestAFailingEmbedderIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := newMeanings()
	m.do(func(context.Context, []string) error {
		return &stream.ModelError{Code: stream.CodeProviderError, Message: "the model's provider failed"}
	})
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo, m.option, func(_ *server.Options, c *service.Options) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		session := p.windowed(4000, "semantic")
		for i := range 3 {
			p.send(session, fmt.Sprint("hush ", i))
			synctest.Wait()
		}
	})
	if asked, lines := len(m.called()), strings.Count(log.String(), "the embedding model"); asked != 3 || lines != 1 || strings.Contains(log.String(), "hush") {
		t.Errorf("%d lines for %d failures: %s", lines, asked, log.String())
	}
}
