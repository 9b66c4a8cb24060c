package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// textModel is a model server that answers each message with the text that a test has given for it, in pieces and without a pause.
// Where a text has a "⏸", the model waits there until it may go on; where it has a "💥", it fails there.
type textModel struct {
	*httptest.Server
	pieces int           // how many bytes a piece has, about
	pace   time.Duration // before each piece

	mu    sync.Mutex
	texts map[string]string // guarded by mu; by the newest message
	goOn  chan struct{}     // guarded by mu; closed when waiting replies may go on
}

func newTextModel(t *testing.T, pieces int) *textModel {
	m := &textModel{pieces: pieces, texts: map[string]string{}, goOn: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

// env is what has a server use the model.
func (m *textModel) env() []string {
	return []string{"PARLEY_ADMIN_KEY=" + declaredKey, "OPENAI_BASE_URL=" + m.URL, "PARLEY_MODEL=texts",
		"PARLEY_MODEL_FIRST_BYTE=1h", "PARLEY_MODEL_STALL=1h",
		`PARLEY_TIERS={"pro":{"requestsPerMinute":100000,"tokensPerMinute":100000000}}`}
}

// says has the model answer a message so.
func (m *textModel) says(asked, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts[asked] = text
}

// release lets the replies that wait go on.
func (m *textModel) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.goOn)
	m.goOn = make(chan struct{})
}

func (m *textModel) answer(w http.ResponseWriter, r *http.Request) {
	asked, ok := lastAsked(w, r, "texts")
	if !ok {
		return
	}
	m.mu.Lock()
	text, goOn := m.texts[asked], m.goOn
	m.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	before, after, waits := strings.Cut(text, "⏸")
	before, _, fails := strings.Cut(before, "💥")
	m.write(w, before)
	if waits {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
		case <-r.Context().Done():
			return
		}
		m.write(w, after)
	}
	if fails { // in words that mean harm
		fmt.Fprint(w, "data: {\"error\":{\"message\":\"<img src=x onerror=alert(1)>\",\"code\":\"<script>alert(1)</script>\"}}\n\n")
		return
	}
	n := len(text)/4 + 1
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n, n+10)
}

// write writes a text in pieces, none of which splits a character.
func (m *textModel) write(w http.ResponseWriter, text string) {
	for len(text) > 0 {
		end := len(text)
		for i := range text {
			if i >= m.pieces {
				end = i
				break
			}
		}
		if m.pace > 0 {
			<-time.After(m.pace)
		}
		quoted, _ := json.Marshal(text[:end])
		if _, err := fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", quoted); err != nil {
			return
		}
		if m.pace > 0 {
			_ = http.NewResponseController(w).Flush()
		}
		text = text[end:]
	}
}
