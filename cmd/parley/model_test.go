package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// wordsModel is a model server that says "wörd-0 wörd-1 …", as many words as the newest message asks for ("say 5"; else
// three), three every pace, and remembers when it has said what. It may be held: then a test decides how far its replies come.
type wordsModel struct {
	*httptest.Server
	pace time.Duration

	mu      sync.Mutex
	said    map[string][]time.Time // guarded by mu; by the newest message: when each word was written
	closed  map[string]bool        // guarded by mu; by the newest message: its request was closed before the reply was whole
	allowed int                    // guarded by mu; how many words of a reply may be said
	more    chan struct{}          // guarded by mu; closed when allowed grows
}

func newWordsModel(t *testing.T, pace time.Duration) *wordsModel {
	m := &wordsModel{pace: pace, said: map[string][]time.Time{}, closed: map[string]bool{}, allowed: math.MaxInt, more: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

// newHeldModel returns a model whose replies stop after that many words, until allow raises the limit.
func newHeldModel(t *testing.T, allowed int) *wordsModel {
	m := newWordsModel(t, time.Millisecond)
	m.allow(allowed)
	return m
}

// allow lets each reply continue up to n words, also those that begin later.
func (m *wordsModel) allow(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allowed = n
	close(m.more)
	m.more = make(chan struct{})
}

// await waits until the i-th word may be said. It reports false if the request was closed first.
func (m *wordsModel) await(ctx context.Context, i int) bool {
	for {
		m.mu.Lock()
		allowed, more := m.allowed, m.more
		m.mu.Unlock()
		if i < allowed {
			return true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return false
		}
	}
}

// env is the environment of a server that uses the model. The timeouts let a test hold a reply as long as it likes.
func (m *wordsModel) env() []string {
	return []string{"PARLEY_ADMIN_KEY=" + declaredKey, "OPENAI_BASE_URL=" + m.URL, "PARLEY_MODEL=words",
		"PARLEY_MODEL_FIRST_BYTE=1h", "PARLEY_MODEL_STALL=1h"}
}

// lastAsked returns the last message of a request to a model of that name. What asks for nothing, or for the models, it answers.
func lastAsked(w http.ResponseWriter, r *http.Request, name string) (asked string, ok bool) {
	if strings.HasSuffix(r.URL.Path, "/models") {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model"}]}`, name)
		return "", false
	}
	var request struct {
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		http.Error(w, `{"error":{"message":"bad"}}`, http.StatusBadRequest)
		return "", false
	}
	return request.Messages[len(request.Messages)-1].Content, true
}

func (m *wordsModel) answer(w http.ResponseWriter, r *http.Request) {
	asked, ok := lastAsked(w, r, "words")
	if !ok {
		return
	}
	n := 3
	_, _ = fmt.Sscanf(asked, "say %d", &n)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closed[asked] = len(m.said[asked]) < n
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(m.pace)
	defer tick.Stop()
	for i := range n {
		if i%3 == 0 { // words come in threes, so that a reply lasts a while without costing the machine too much
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
		}
		if !m.await(r.Context(), i) {
			return
		}
		quoted, _ := json.Marshal(word(i))
		if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", quoted); err != nil {
			return
		}
		if flush.Flush() != nil {
			return
		}
		m.mu.Lock()
		m.said[asked] = append(m.said[asked], time.Now())
		m.mu.Unlock()
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n, n+10)
}

// saidBefore returns how many words had been said in answer to a message by then.
func (m *wordsModel) saidBefore(asked string, then time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(m.said[asked]), func(at time.Time) bool { return at.After(then) }))
}

// awaitClosed waits until the request with a message is closed, and fails the test if its reply was written to the end.
func (m *wordsModel) awaitClosed(t *testing.T, asked string) {
	t.Helper()
	early := false
	eventually(t, "the model's request is still open: "+asked, func() (closed bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		early, closed = m.closed[asked]
		return closed
	})
	if !early {
		t.Errorf("the model's request was not closed: %q was answered to the end", asked)
	}
}

// awaitSaid waits until the model has said n words in answer to a message.
func (m *wordsModel) awaitSaid(t *testing.T, asked string, n int) {
	t.Helper()
	eventually(t, "the model does not get on", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.said[asked]) >= n
	})
}

// awaitMore waits until the model has said n more words to anybody.
func (m *wordsModel) awaitMore(t *testing.T, n int) {
	t.Helper()
	n += m.sum()
	eventually(t, "the model does not get on", func() bool { return m.sum() >= n })
}

// sum returns how many words the model has said.
func (m *wordsModel) sum() (sum int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, said := range m.said {
		sum += len(said)
	}
	return sum
}

// word is the i-th word of what the test's model says.
func word(i int) string { return fmt.Sprintf("wörd-%d ", i) }

// words are the first n of them.
func words(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(word(i))
	}
	return all.String()
}
