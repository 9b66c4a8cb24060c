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

	"parley/conversation/tokens"
)

// wordsModel is a model server that replies "wörd-0 wörd-1 …". The newest message sets the number of words ("say 5"); the default
// is three. The model writes three words in each interval of the length pace, and records the time of each word. allow can make
// replies pause after a number of words.
type wordsModel struct {
	*httptest.Server
	pace time.Duration

	mu      sync.Mutex
	written map[string][]time.Time // guarded by mu; by the newest message: the time at which each word was written
	closed  map[string]bool        // guarded by mu; by the newest message of an ended request: whether words were missing
	allowed int                    // guarded by mu; maximum number of words of a reply
	more    chan struct{}          // guarded by mu; closed when allowed grows
}

func newWordsModel(t *testing.T, pace time.Duration) *wordsModel {
	m := &wordsModel{pace: pace, written: map[string][]time.Time{}, closed: map[string]bool{}, allowed: math.MaxInt, more: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

// newHeldModel returns a model. Its replies pause after allowed words, until allow raises the limit.
func newHeldModel(t *testing.T, allowed int) *wordsModel {
	m := newWordsModel(t, time.Millisecond)
	m.allow(allowed)
	return m
}

// allow lets each reply continue up to n words, including replies that begin later.
func (m *wordsModel) allow(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allowed = n
	close(m.more)
	m.more = make(chan struct{})
}

// await waits until word i may be written. It returns false if the request is closed first.
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

// env returns the environment of a server that uses the model. The timeouts of 1 h let a test pause a reply without an error.
func (m *wordsModel) env() []string {
	return []string{"PARLEY_ADMIN_KEY=" + declaredKey, "OPENAI_BASE_URL=" + m.URL, "PARLEY_MODEL=words",
		"PARLEY_MODEL_FIRST_BYTE=1h", "PARLEY_MODEL_STALL=1h"}
}

// newestMessage returns the content of the last message in a request for a chat completion. It answers any other request itself
// and returns false. A request for the list of models gets a list with one model, name. A request that is invalid or has no
// messages gets 400.
func newestMessage(w http.ResponseWriter, r *http.Request, name string) (asked string, ok bool) {
	if strings.HasSuffix(r.URL.Path, "/models") {
		w.Header().Set("Content-Type", "application/json")
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
	asked, ok := newestMessage(w, r, "words")
	if !ok {
		return
	}
	n := 3
	_, _ = fmt.Sscanf(asked, "say %d", &n)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closed[asked] = len(m.written[asked]) < n
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(m.pace)
	defer tick.Stop()
	for i := range n {
		if i%3 == 0 { // one tick for three words: a reply takes a while, but needs few timer events
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
		m.written[asked] = append(m.written[asked], time.Now())
		m.mu.Unlock()
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n, n+10)
}

// writtenBefore returns the number of words that the model had written at the time then, in the reply to the message asked.
func (m *wordsModel) writtenBefore(asked string, then time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(m.written[asked]), func(at time.Time) bool { return at.After(then) }))
}

// awaitClosed waits until the request for the reply to a message has ended. It fails the test if the model wrote the whole reply.
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
		t.Errorf("the model's request was not closed: the reply to %q was written completely", asked)
	}
}

// awaitWritten waits until the model has written n words of the reply to a message.
func (m *wordsModel) awaitWritten(t *testing.T, asked string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the model has not written %d words", n), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.written[asked]) >= n
	})
}

// awaitMore waits until the model has written n more words, in all replies together.
func (m *wordsModel) awaitMore(t *testing.T, n int) {
	t.Helper()
	n += m.total()
	eventually(t, fmt.Sprintf("the model has not written %d words in all", n), func() bool { return m.total() >= n })
}

// total returns the number of words that the model has written, in all replies together.
func (m *wordsModel) total() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, times := range m.written {
		n += len(times)
	}
	return n
}

// word returns word i of each reply of wordsModel, counted from 0, with a space after it.
func word(i int) string { return fmt.Sprintf("wörd-%d ", i) }

// words returns the first n words of a reply of wordsModel.
func words(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(word(i))
	}
	return all.String()
}

// tokensOf returns the number of tokens that a message of the tests' models has if its content is text.
func tokensOf(text string) int { return tokens.For("words").Count(text) }
