package background_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/background"
	"parley/conversation/conversationtest"
	"parley/conversation/prompt"
	"parley/conversation/service"
	"parley/conversation/window"
	"parley/stream"
)

// meanings is an embedding model. Each dimension of its vectors stands for a few words. A test can set a hook that
// delays the calls or makes them fail.
type meanings struct {
	mu    sync.Mutex
	name  string                                          // guarded by mu
	hook  func(ctx context.Context, texts []string) error // guarded by mu; called first if not nil
	calls [][]string                                      // guarded by mu
}

func (m *meanings) Name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.name
}

func (m *meanings) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	m.mu.Lock()
	m.calls = append(m.calls, texts)
	hook := m.hook
	m.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, texts); err != nil {
			return stream.Embeddings{}, err
		}
	}
	found := stream.Embeddings{Tokens: len(texts)}
	for _, text := range texts {
		v := []float32{0, 0, 0, 0, 0, 0, 0.1}
		for i, words := range []string{"rules", "lighthouse vessels beacons", "passwords", "weather", "dinner", "music"} {
			if slices.ContainsFunc(strings.Fields(words), func(word string) bool { return strings.Contains(text, word) }) {
				v[i] = 1
			}
		}
		found.Vectors = append(found.Vectors, v)
	}
	return found, nil
}

// setHook makes Embed call hook first from now on; nil removes the hook. setHook also forgets earlier calls.
func (m *meanings) setHook(hook func(ctx context.Context, texts []string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook, m.calls = hook, nil
}

// called returns the calls of Embed since called was used last.
func (m *meanings) called() [][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

// talks is a session with the semantic policy. Its window of 300 tokens holds three of its six exchanges, and a question.
type talks struct {
	*conversationtest.Node
	embedder *meanings
	model    *conversationtest.Directed
	session  string
}

var subjects = []string{
	"rules here: nobody reads them anyway", "lighthouse keepers warn the ships at night", "passwords are kept in the red drawer",
	"weather is nice today so they say", "dinner is at eight in the evening", "music is played by a small orchestra",
}

func newTalks(t *testing.T, options ...conversationtest.Option) *talks {
	x := &talks{embedder: &meanings{name: "meanings"}, model: conversationtest.NewDirected()}
	x.Node = conversationtest.Start(t, x.model, append(options, func(o *service.Options) { o.Embedder = x.embedder })...)
	x.session = x.NewSession(conversation.ContextConfig{MaxTokens: 300, CompressionEnabled: true, RetentionPolicy: conversation.Semantic})
	return x
}

func (x *talks) exchange(text, reply string) (*conversationtest.Call, conversation.Message) {
	x.T.Helper()
	replied := x.Later(conversationtest.Message(x.session, text))
	c := x.model.Next(x.T)
	c.Write(reply)
	c.End()
	r := <-replied
	if r.Err != nil {
		x.T.Fatal(r.Err)
	}
	return c, r.Message
}

func (x *talks) talk(words string) {
	x.T.Helper()
	first, _, _ := strings.Cut(words, " ")
	reply := "to-" + first
	x.exchange(words+strings.Repeat(" ", 80-len(words)), reply+strings.Repeat(" ", 128-len(reply)))
}

// ask asks about lighthouses in words that occur in no exchange. It returns the first word of each message in the
// prompt, and the method of comparison.
func (x *talks) ask() (firstWords string, similarity conversation.Similarity) {
	x.T.Helper()
	c, m := x.exchange("Which vessels do beacons help?"+strings.Repeat(" ", 10), "none")
	var all []string
	for _, m := range c.Request.Messages {
		all = append(all, strings.Fields(m.Content)[0])
	}
	return strings.Join(all, " "), m.Context.Similarity
}

const (
	byEmbeddings = "lighthouse to-lighthouse dinner to-dinner music to-music Which"
	byWords      = "weather to-weather dinner to-dinner music to-music Which"
)

func TestEmbeddings_Made_ClosestExchangesSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTalks(t)
		for _, words := range subjects {
			x.talk(words)
			synctest.Wait()
		}
		preview, err := x.Preview(t.Context(), owner, x.session, conversation.User, "Which vessels do beacons help?"+strings.Repeat(" ", 10))
		if err != nil || preview.Context.Similarity != conversation.ByEmbeddings || preview.Context.Kept.Count != 7 {
			t.Errorf("the preview is %+v %v", preview.Context, err)
		}
		if got, similarity := x.ask(); got != byEmbeddings || similarity != conversation.ByEmbeddings {
			t.Errorf("the model was asked %q, by %v", got, similarity)
		}
	})
}

func TestEmbeddings_MadeOnlyForSemanticWithCompression(t *testing.T) {
	for name, test := range map[string]struct {
		policy      conversation.RetentionPolicy
		compression bool
		want        int
	}{
		"fifo": {conversation.FIFO, true, 0}, "priority": {conversation.Priority, true, 0}, "semantic": {conversation.Semantic, true, 2},
		"no compression": {conversation.Semantic, false, 0},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			m := &meanings{name: "meanings"}
			n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Embedder = m })
			session := n.NewSession(conversation.ContextConfig{MaxTokens: 4000, RetentionPolicy: test.policy, CompressionEnabled: test.compression})
			for _, text := range []string{"hello", "and again"} {
				reply := n.Ask(session, text)
				synctest.Wait()
				if reply.Context.Similarity != "" {
					t.Errorf("everything fits, but the report is %+v", reply.Context)
				}
			}
			calls := m.called()
			if len(calls) != test.want {
				t.Errorf("the embedder was asked %q", calls)
			}
			if test.want > 0 && !slices.Equal(calls[0], []string{"hello\nYou said: hello"}) {
				t.Errorf("an exchange is embedded as %q", calls[0])
			}
		}))
	}
}

// A turn waits 200 ms for an embedder that never responds, and does not wait for an embedder that fails. The next turn
// does not wait at all.
func TestEmbeddings_LateOrFailing_ComparesWords(t *testing.T) {
	for name, test := range map[string]struct {
		hook  func(ctx context.Context, texts []string) error
		waits time.Duration
	}{
		"never responds": {func(ctx context.Context, _ []string) error { <-ctx.Done(); return ctx.Err() }, 200 * time.Millisecond},
		"fails at once":  {func(context.Context, []string) error { return &stream.ModelError{Code: stream.CodeProviderError} }, 0},
	} {
		t.Run(name, inBubble(func(t *testing.T) {
			x := newTalks(t)
			for _, words := range subjects {
				x.talk(words)
				synctest.Wait()
			}
			x.embedder.setHook(test.hook)
			began := time.Now()
			got, similarity := x.ask()
			if took := time.Since(began); took != test.waits || got != byWords || similarity != conversation.ByWords {
				t.Errorf("after %v the model was asked %q, by %v", took, got, similarity)
			}
			time.Sleep(time.Minute) // until the job after the reply times out
			x.embedder.setHook(nil)
			began = time.Now()
			if _, similarity := x.ask(); similarity != conversation.ByWords || time.Since(began) != 0 {
				t.Errorf("the turn after the failure took %v, by %v", time.Since(began), similarity)
			}
			synctest.Wait() // the job after the reply succeeds
			if got, similarity := x.ask(); similarity != conversation.ByEmbeddings || !strings.HasPrefix(got, "lighthouse ") {
				t.Errorf("after a success the model was asked %q, by %v", got, similarity)
			}
		}))
	}
}

// The embedder first fails and then works again. Later, another embedding model replaces it. After each of these
// changes, the next job embeds the exchanges that lack an embedding.
func TestEmbeddings_EmbedderRecovers_MissingOnesMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTalks(t)
		x.embedder.setHook(func(context.Context, []string) error { return errors.New("planted") })
		for _, words := range subjects {
			x.talk(words)
		}
		synctest.Wait()
		x.embedder.setHook(nil)
		if got, similarity := x.ask(); got != byWords || similarity != conversation.ByWords {
			t.Errorf("without embeddings the model was asked %q, by %v", got, similarity)
		}
		synctest.Wait()
		calls := x.embedder.called()
		if len(calls) != 1 || len(calls[0]) != 7 || !strings.HasPrefix(calls[0][0], "Which") || !strings.HasPrefix(calls[0][1], "music") || !strings.HasPrefix(calls[0][6], "rules") {
			t.Errorf("after it works again, the embedder was asked %q", calls)
		}
		if _, similarity := x.ask(); similarity != conversation.ByEmbeddings {
			t.Errorf("after the job, messages are compared by %v", similarity)
		}
		synctest.Wait()
		x.embedder.called()
		x.embedder.mu.Lock()
		x.embedder.name = "others"
		x.embedder.mu.Unlock()
		if _, similarity := x.ask(); similarity != conversation.ByWords {
			t.Errorf("with another model's embeddings, messages are compared by %v", similarity)
		}
		synctest.Wait()
		if calls := x.embedder.called(); len(calls) != 1 || len(calls[0]) != 9 {
			t.Errorf("the new embedder was asked %q", calls)
		}
		if _, similarity := x.ask(); similarity != conversation.ByEmbeddings {
			t.Errorf("with the new model's embeddings, messages are compared by %v", similarity)
		}
	})
}

// The embedder refuses a batch of texts if one of them contains the word password. The job must then embed the newest
// exchange in a call of its own.
func TestEmbeddings_BatchRefused_NewestEmbeddedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTalks(t)
		x.embedder.setHook(func(_ context.Context, texts []string) error {
			if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, "password") }) {
				return &stream.ModelError{Code: stream.CodeProviderError, Message: "refused"}
			}
			return nil
		})
		for _, words := range subjects {
			x.talk(words)
			synctest.Wait()
		}
		x.embedder.called()
		x.ask()
		synctest.Wait()
		calls := x.embedder.called() // calls for: the question; all exchanges without an embedding; the newest exchange alone
		if len(calls) != 3 || len(calls[1]) != 2 || len(calls[2]) != 1 || !strings.HasPrefix(calls[2][0], "Which") {
			t.Errorf("the embedder was asked %q", calls)
		}
	})
}

func TestEmbeddings_Drain_CancelsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meanings{name: "meanings"}
		m.setHook(func(ctx context.Context, _ []string) error { <-ctx.Done(); return ctx.Err() })
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Embedder = m })
		n.Ask(n.NewSession(conversation.ContextConfig{MaxTokens: 1000, CompressionEnabled: true, RetentionPolicy: conversation.Semantic}), "hello")
		synctest.Wait()
		began := time.Now()
		if n.Drain(t.Context()); time.Since(began) > 100*time.Millisecond { // more than a tick of the journal
			t.Errorf("the drain took %v", time.Since(began))
		}
	})
}

// The test also checks that the log contains no text of a message.
func TestEmbeddings_Failing_LoggedOnce(t *testing.T) {
	var log bytes.Buffer
	m := &meanings{name: "meanings"}
	m.setHook(func(context.Context, []string) error {
		return &stream.ModelError{Code: stream.CodeProviderError, Message: "the model's provider failed"}
	})
	synctest.Test(t, func(t *testing.T) {
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) {
			o.Embedder, o.Log = m, slog.New(slog.NewTextHandler(&log, nil))
		})
		session := n.NewSession(conversation.ContextConfig{MaxTokens: 4000, CompressionEnabled: true, RetentionPolicy: conversation.Semantic})
		for i := range 3 {
			n.Ask(session, fmt.Sprint("hush ", i))
			synctest.Wait()
		}
	})
	if asked, lines := len(m.called()), strings.Count(log.String(), "the embedding model"); asked != 3 || lines != 1 || strings.Contains(log.String(), "hush") {
		t.Errorf("the log has %d lines for %d failures: %s", lines, asked, log.String())
	}
}

// An embedder that returns the wrong number of vectors counts as failing.
func TestEmbeddings_WrongVectorCount_NotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Embedder = noVectors{} })
		config := conversation.ContextConfig{MaxTokens: 100, CompressionEnabled: true, RetentionPolicy: conversation.Semantic}
		session := n.NewSession(config)
		for range 8 {
			if m := n.Ask(session, "hello, hello, hello"); m.Status != stream.Completed || m.Context.Similarity == conversation.ByEmbeddings {
				t.Errorf("the report is %+v", m.Context)
			}
			synctest.Wait()
		}
	})
}

type noVectors struct{}

func (noVectors) Name() string { return "none" }

func (noVectors) Embed(context.Context, []string) (stream.Embeddings, error) {
	return stream.Embeddings{}, nil
}

// The embedder would refuse a very long text, so OfMessage must send only the beginning of the message.
func TestOfMessage_LongMessage_CutTo4000Bytes(t *testing.T) {
	m := &meanings{name: "meanings"}
	e := background.NewEmbeddings(background.EmbeddingOptions{Embedder: m})
	vector, err := window.VectorOf("meanings", []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	c := conversation.Context{Index: []conversation.Indexed{{ID: "msg_0", Role: conversation.Assistant, Vector: vector}}}
	c.Session.Context.RetentionPolicy = conversation.Semantic
	e.OfMessage(t.Context(), prompt.New(c, conversation.Message{Role: conversation.User, Content: strings.Repeat("é", 10_000)}))
	if len(m.calls) != 1 || len(m.calls[0][0]) != 4000 {
		t.Errorf("the embedder got the texts %.40q", m.calls)
	}
}
