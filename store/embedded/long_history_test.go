package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/conversation"
	"parley/conversation/service"
	"parley/conversation/window"
	"parley/stream"
	"parley/stream/models"
)

// tallied wraps a store. It records the calls that read the history, and the number of bytes that they return.
type tallied struct {
	conversation.Store
	mu    sync.Mutex
	trips []string // guarded by mu; names of the calls
	bytes int      // guarded by mu; approximate size of the messages and index entries that were read
	// summarised receives the number of messages that each summary covers.
	summarised chan int
}

func (s *tallied) SaveSummary(ctx context.Context, o conversation.Owner, session, after string, summary conversation.Summary, u conversation.Usage) error {
	err := s.Store.SaveSummary(ctx, o, session, after, summary, u)
	if err == nil {
		s.summarised <- summary.Count
	}
	return err
}

func (s *tallied) note(trip string, messages []conversation.Message, index []conversation.Indexed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trips = append(s.trips, trip)
	for i := range messages {
		s.bytes += 64 + len(messages[i].Content) + len(messages[i].Metadata)
	}
	for i := range index {
		s.bytes += 64 + 8*len(index[i].Terms) + len(index[i].Vector)
	}
}

func (s *tallied) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	b, err := s.Store.BeginTurn(ctx, o, turn)
	s.note("begin", b.History, b.Index)
	return b, err
}

func (s *tallied) MessagesByID(ctx context.Context, o conversation.Owner, session string, ids []string) ([]conversation.Message, error) {
	m, err := s.Store.MessagesByID(ctx, o, session, ids)
	s.note("texts", m, nil)
	return m, err
}

func (s *tallied) Messages(ctx context.Context, o conversation.Owner, session string, q conversation.MessageQuery) (conversation.MessagePage, error) {
	p, err := s.Store.Messages(ctx, o, session, q)
	s.note("page", p.Messages, nil)
	return p, err
}

func (s *tallied) Context(ctx context.Context, o conversation.Owner, session string, tokens int) (conversation.Context, error) {
	c, err := s.Store.Context(ctx, o, session, tokens)
	s.note("context", c.History, c.Index)
	return c, err
}

func (s *tallied) Summary(ctx context.Context, o conversation.Owner, session string) (conversation.Session, conversation.Summary, error) {
	s.note("summary", nil, nil)
	return s.Store.Summary(ctx, o, session)
}

// recorder is a model. For each of its calls, it records the request and the calls to the store before it.
type recorder struct {
	store *tallied
	mu    sync.Mutex
	calls []modelCall // guarded by mu
}

type modelCall struct {
	request stream.Request
	trips   []string
	bytes   int
}

func (*recorder) Name() string { return "recorder" }

func (m *recorder) Generate(_ context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	m.store.mu.Lock()
	c := modelCall{request, m.store.trips, m.store.bytes}
	m.store.mu.Unlock()
	m.mu.Lock()
	m.calls = append(m.calls, c)
	m.mu.Unlock()
	write([]byte(talk("The harbour is deep enough for all of them, says the keeper.")))
	return stream.Result{FinishReason: "stop"}, nil
}

// talk pads words with spaces to 184 bytes, which are 46 tokens.
func talk(words string) string { return words + strings.Repeat(" ", 184-len(words)) }

func fourth(text string) int { return (len(text) + 3) / 4 }

// Each session has 100 or 10,000 messages and a summary. The next turn must call the model at once, without another summary.
// Before that, the turn may read the store once, or twice if the policy chooses among more messages than BeginTurn returned. The
// turn may read no more bytes than the window and the index contain.
func TestTurn_LongHistory_FewStoreReads(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy   conversation.RetentionPolicy
		embedder stream.Embedder
		trips    int
		bytes    int
	}{
		{conversation.FIFO, nil, 1, 8 << 10}, {conversation.Priority, nil, 2, 160 << 10}, {conversation.Semantic, nil, 2, 640 << 10},
		{conversation.Semantic, alike{}, 2, 640<<10 + 1000*1550},
	} {
		policy, limits := test.policy, test
		for _, n := range []int{100, 10_000} {
			t.Run(fmt.Sprintf("%s, %d messages, embedder: %t", policy, n, test.embedder != nil), func(t *testing.T) {
				t.Parallel()
				c := firstCall(t, policy, test.embedder, n)
				if c.request.Summary || len(c.trips) > limits.trips || c.bytes > limits.bytes {
					t.Errorf("the first model call (summary: %v) came after the store calls %v, which read %d bytes; want at most %d calls and %d bytes",
						c.request.Summary, c.trips, c.bytes, limits.trips, limits.bytes)
				}
				if m := c.request.Messages[0]; m.Role != "system" || !strings.HasPrefix(m.Content, "Summary") {
					t.Errorf("the prompt begins with %+v", m)
				}
			})
		}
	}
}

// alike is an embedder that returns the same vector, of 1,536 dimensions, for every text.
type alike struct{}

func (alike) Name() string { return "alike" }

func (alike) Embed(_ context.Context, texts []string) (stream.Embeddings, error) {
	vector := make([]float32, 1536)
	for i := range vector {
		vector[i] = float32(i%7) - 3
	}
	return stream.Embeddings{Vectors: slices.Repeat([][]float32{vector}, len(texts))}, nil
}

// firstCall begins a turn in a session with about n messages and a summary. It returns the turn's first call to the model.
func firstCall(t *testing.T, policy conversation.RetentionPolicy, embedder stream.Embedder, n int) modelCall {
	file := open(t, newPath(t))
	store := &tallied{Store: file, summarised: make(chan int, 16)}
	model := &recorder{store: store}
	options := service.Options{
		Store: store, Models: models.Of(models.New(model.Name(), model, 0)), Embedder: embedder, Count: fourth, Log: slog.New(slog.DiscardHandler),
		Timeouts: stream.Timeouts{FirstByte: time.Minute, Stall: time.Minute},
	}
	first := service.New(options)
	must(t, first.Start(t.Context()))
	asked := conversation.NewSession{UserID: "user_0123456789abcdef", Context: conversation.ContextConfig{
		MaxTokens: 1000, CompressionEnabled: true, RetentionPolicy: policy,
	}}
	created, err := store.CreateSession(t.Context(), somebody, asked)
	must(t, err)
	session := created.Session.ID
	last := grow(t, file, created.Session, n-12)
	if embedder != nil {
		embedAll(t, file, session, embedder)
	}
	must(t, file.SaveSummary(t.Context(), somebody, session, "", conversation.Summary{Text: "Summary: ships.", Tokens: 4, Last: last, Count: n - 12}, conversation.Usage{}))
	for i := range 6 {
		send(t, first, session, talk(fmt.Sprint("before ", i)))
	}
	whole := map[conversation.RetentionPolicy]int{conversation.FIFO: n - 2, conversation.Priority: n, conversation.Semantic: n}[policy]
	for summarised := 0; summarised < whole; { // the summary is made after the last reply
		summarised = <-store.summarised
	}
	first.Drain(t.Context())
	second := service.New(options)
	must(t, second.Start(t.Context()))
	defer second.Drain(t.Context())
	if slices.Contains(store.trips, "context") {
		t.Error("a job after a reply read the whole context; it needs only the summary")
	}
	store.trips, store.bytes, model.calls = nil, 0, nil
	send(t, second, session, talk("how deep is the harbour for ships?"))
	model.mu.Lock()
	defer model.mu.Unlock()
	return model.calls[0]
}

// grow adds n messages to an empty session in one transaction. It returns the id of the last message.
func grow(t *testing.T, s *Store, session conversation.Session, n int) string {
	t.Helper()
	must(t, s.submit(t.Context(), func(w *writing) error {
		at, grown := ref{somebody, session.ID}, session
		for i := range n / 2 {
			turn := newTurn(session.ID, fmt.Sprintf("question %d about the lighthouse, the harbour and the %d ships", i, i%17))
			message, reply := messagesOf(&turn, &grown, w.now)
			ended := completed("The harbour is deep enough for all of them, says the keeper of the light.")
			reply.Content, reply.Tokens, reply.Status = ended.Content, ended.Tokens, ended.Status
			reply.Terms = window.TermsOf(message.Content, reply.Content)
			for n, m := range []*conversation.Message{&message, &reply} {
				if err := errors.Join(w.putMessage(at, m, grown.MessageCount+n+1), w.index(at, &grown, m)); err != nil {
					return err
				}
				grown.HistoryTokens += m.TokensInPrompt()
			}
			grown.MessageCount, grown.Head = grown.MessageCount+2, reply.ID
		}
		session = grown
		return w.putSession(at, &grown)
	}))
	return session.Head
}

// embedAll sets the vectors of all indexed replies of a session.
func embedAll(t *testing.T, s *Store, session string, embedder stream.Embedder) {
	t.Helper()
	found, err := embedder.Embed(t.Context(), []string{""})
	must(t, err)
	v, err := window.VectorOf(embedder.Name(), found.Vectors[0])
	must(t, err)
	c, err := s.Context(t.Context(), somebody, session, 100_000)
	must(t, err)
	var all []conversation.ExchangeVector
	for _, x := range c.Index {
		if x.Role == conversation.Assistant {
			all = append(all, conversation.ExchangeVector{Reply: x.ID, Vector: v})
		}
	}
	must(t, s.SetVectors(t.Context(), somebody, session, all))
}

// send sends a message and waits for its reply.
func send(t *testing.T, service *service.Service, session, text string) {
	t.Helper()
	m := conversation.NewMessage{SessionID: session, Role: conversation.User, Content: text, OnBusy: conversation.Enqueue}
	slot, err := service.TakeSlot(somebody, session, nil)
	must(t, err)
	defer slot.Release()
	sent, err := service.Send(t.Context(), slot, m)
	must(t, err)
	_, err = sent.Wait(t.Context())
	must(t, err)
}

// BenchmarkPreview measures a dry run in a session of 1,000 exchanges with 16 KiB of metadata each. The window holds them all.
func BenchmarkPreview(b *testing.B) {
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		b.Run(string(policy), func(b *testing.B) {
			s := openBench(b, Options{noSync: true})
			created, err := s.CreateSession(b.Context(), somebody, conversation.NewSession{
				UserID: "user_0123456789abcdef", Context: conversation.ContextConfig{
					MaxTokens: 1_000_000, CompressionEnabled: true, RetentionPolicy: policy,
				},
			})
			must(b, err)
			metadata := json.RawMessage(`{"list":[` + strings.Repeat(`"sixteen bytes",`, 1000) + `0]}`)
			for range 1000 {
				turn := newTurn(created.Session.ID, "hello")
				turn.Metadata = metadata
				begun, err := s.BeginTurn(b.Context(), somebody, turn)
				must(b, err)
				_, err = s.EndTurn(b.Context(), begun.Key, completed("good day"), conversation.Timing{})
				must(b, err)
			}
			service := service.New(service.Options{Store: s, Count: fourth, Log: slog.New(slog.DiscardHandler)})
			for b.Loop() {
				_, err := service.Preview(b.Context(), somebody, created.Session.ID, conversation.User, "hello")
				must(b, err)
			}
		})
	}
}
