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

// textModel is a model server. It replies to each message with a text that the test has set, in pieces. A "⏸" in the text makes
// the reply pause until release; a "💥" makes the reply fail.
type textModel struct {
	*httptest.Server
	pieces int           // size of a piece in bytes, rounded up to whole characters
	pace   time.Duration // pause before each piece; 0 for none

	mu    sync.Mutex
	texts map[string]string // guarded by mu; by the newest message of the request
	goOn  chan struct{}     // guarded by mu; closed when paused replies may continue
}

func newTextModel(t *testing.T, pieces int) *textModel {
	m := &textModel{pieces: pieces, texts: map[string]string{}, goOn: make(chan struct{})}
	m.Server = httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(func() { m.CloseClientConnections(); m.Close() })
	return m
}

// env returns the environment of a server that uses the model, with high timeouts and rate limits.
func (m *textModel) env() []string {
	return []string{"PARLEY_ADMIN_KEY=" + declaredKey, "OPENAI_BASE_URL=" + m.URL, "PARLEY_MODEL=texts",
		"PARLEY_MODEL_FIRST_BYTE=1h", "PARLEY_MODEL_STALL=1h",
		`PARLEY_TIERS={"pro":{"requestsPerMinute":100000,"framesPerMinute":1000000,"tokensPerMinute":100000000}}`}
}

// setReply sets the reply to a message.
func (m *textModel) setReply(message, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.texts[message] = text
}

// release lets paused replies continue.
func (m *textModel) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.goOn)
	m.goOn = make(chan struct{})
}

func (m *textModel) answer(w http.ResponseWriter, r *http.Request) {
	asked, ok := newestMessage(w, r, "texts")
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
	if fails { // with an error that contains HTML, which the page must not run
		fmt.Fprint(w, "data: {\"error\":{\"message\":\"<img src=x onerror=alert(1)>\",\"code\":\"<script>alert(1)</script>\"}}\n\n")
		return
	}
	n := len(text)/4 + 1
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", n, n+10)
}

// write sends text in pieces without splitting a character.
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
