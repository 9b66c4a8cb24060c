package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"parley/cmd/chaos/history"
)

// model is a model server. The newest message of a request is an instruction: "TAG say N" makes it send N words, each
// with the tag, so that no two replies have a common text. "TAG say N then HOW" makes it lie after N words. The model
// server records what it sent.
type model struct {
	url  string
	pace time.Duration // the pause after each third word

	mu   sync.Mutex
	sent map[string]*sent // guarded by mu; by the message
}

// sent is what the model has sent for a message. A server may ask again, for example after a refusal.
type sent struct {
	words int       // the most words of one response
	whole bool      // a response had the regular end
	ended time.Time // when the latest response ended
}

// These are the ways in which a model lies. Except for refuses and endless, it first sends the requested words.
const (
	stalls  = "stall"   // it sends nothing more, and keeps the connection open
	cuts    = "cut"     // it closes the connection in the middle of a line
	garbage = "garbage" // it sends lines that are no events
	fails   = "fail"    // it sends an error
	refuses = "refuse"  // it responds with 500, before any word
	endless = "endless" // it sends words until the server closes the connection, or up to endlessWords
)

const (
	// endlessWords bounds a model that ignores its limit, so that a server without a bound does not fill the memory of the
	// machine: about 24 MB of text.
	endlessWords = 2_000_000
	// promptTokens is the prompt usage that the model reports.
	promptTokens = 10
)

const (
	// delta is an event with text; end is the regular end of a response, with the usage.
	delta = `data: {"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}` + "\n\n"
	end   = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}` + "\n\ndata: [DONE]\n\n"
)

// newModel starts a model server. It stops with the scene.
func newModel(s *scene, pace time.Duration) *model {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	m := &model{url: "http://" + listener.Addr().String(), pace: pace, sent: map[string]*sent{}}
	server := &http.Server{Handler: http.HandlerFunc(m.answer)}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	s.Cleanup(func() { _ = server.Close(); <-done })
	return m
}

// instruction is the meaning of a message to the model.
func instruction(message string) (words int, then string) {
	words = 3
	_, order, _ := strings.Cut(message, " say ")
	_, _ = fmt.Sscanf(order, "%d then %s", &words, &then)
	return words, then
}

// word returns word i of the reply to a message. Its "·" has two bytes, so that a torn character shows.
func word(message string, i int) string {
	tag, _, _ := strings.Cut(message, " ")
	return fmt.Sprintf("%s·%d ", tag, i)
}

// text returns the first n words of the reply to a message.
func text(message string, n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(word(message, i))
	}
	return all.String()
}

// answers returns the text that the model has sent in reply to each message.
func (m *model) answers() map[string]history.Answer {
	m.mu.Lock()
	sent := maps.Clone(m.sent)
	m.mu.Unlock()
	all := make(map[string]history.Answer)
	for message, s := range sent {
		a := history.Answer{Text: text(message, s.words), Whole: s.whole}
		if s.whole {
			a.Usage = promptTokens + s.words
		}
		all[message] = a
	}
	return all
}

// endedAt returns the time at which the model's latest response to a message ended; zero if it has not ended.
func (m *model) endedAt(message string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sent[message]; s != nil {
		return s.ended
	}
	return time.Time{}
}

// note changes the record of a message.
func (m *model) note(message string, change func(*sent)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sent[message]
	if s == nil {
		s = &sent{}
		m.sent[message] = s
	}
	change(s)
}

func (m *model) answer(w http.ResponseWriter, r *http.Request) {
	var request struct{ Messages []struct{ Content string } }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
		http.Error(w, `{"error":{"message":"bad"}}`, http.StatusBadRequest)
		return
	}
	message := request.Messages[len(request.Messages)-1].Content
	words, then := instruction(message)
	m.note(message, func(s *sent) { s.ended = time.Time{} })
	defer m.note(message, func(s *sent) { s.ended = time.Now() })
	if then == refuses {
		http.Error(w, `{"error":{"message":"overloaded"}}`, http.StatusInternalServerError)
		return
	}
	if then == endless {
		words = endlessWords
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if !m.write(w, r, message, words, then) {
		return
	}
	switch then {
	case stalls:
		<-r.Context().Done()
	case cuts:
		fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"ne`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case garbage:
		fmt.Fprint(w, "data: {\"choices\":[{]}\n\ndata: \x00\xff<html>\n\n")
	case fails:
		fmt.Fprint(w, "data: {\"error\":{\"message\":\"broken\",\"code\":\"server_error\"}}\n\n")
	default:
		m.note(message, func(s *sent) { s.whole = true })
		fmt.Fprintf(w, end, promptTokens, words, promptTokens+words)
	}
}

// write sends words, three in an interval of the model's pace. It returns false if the server closes the connection first. An
// endless reply is sent as fast as the server reads it, in large chunks.
func (m *model) write(w http.ResponseWriter, r *http.Request, message string, words int, then string) bool {
	group, pace, chunk := 3, m.pace, 1
	if then == endless {
		group, pace, chunk = 2000, 0, 50
	}
	flush := http.NewResponseController(w)
	for i := 0; i < words; i += group {
		end := min(i+group, words)
		m.note(message, func(s *sent) { s.words = max(s.words, end) }) // first: the server may show a word before write returns
		for j := i; j < end; j += chunk {
			var content strings.Builder
			for k := j; k < min(j+chunk, end); k++ {
				content.WriteString(word(message, k))
			}
			if _, err := fmt.Fprintf(w, delta, content.String()); err != nil {
				return false
			}
		}
		if flush.Flush() != nil {
			return false
		}
		select {
		case <-r.Context().Done():
			return false
		case <-time.After(pace):
		}
	}
	return true
}
