package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/coder/websocket"

	"parley/stream/wire"
)

// Pipe is the bare pipe: the least that a server between a model and its clients must do. It relays the model's deltas to the
// sockets that subscribed to a session, and collects them for a JSON response. It has no keys, no limits, no sessions, no history
// and no store. It speaks enough of Parley's API for the workloads streams, requests, viewers and idle, so that the difference
// between Parley and the pipe is the price of what Parley adds.
type Pipe struct {
	model string // URL of the model's chat completions, static
	http  *http.Client
	ids   atomic.Int64

	mu     sync.Mutex
	topics map[string][]*websocket.Conn // guarded by mu; the sockets that are subscribed to a session
}

// NewPipe returns a pipe. modelURL is the URL of an OpenAI-compatible API, including its version.
func NewPipe(modelURL string) *Pipe {
	return &Pipe{
		model:  strings.TrimSuffix(modelURL, "/") + "/chat/completions",
		http:   &http.Client{Transport: &http.Transport{MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, DisableCompression: true}},
		topics: make(map[string][]*websocket.Conn),
	}
}

// Handler returns the pipe's routes.
func (p *Pipe) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sessions", p.createSession)
	mux.HandleFunc("DELETE /v1/sessions/{id}", func(w http.ResponseWriter, _ *http.Request) { respond(w, struct{}{}) })
	mux.HandleFunc("POST /v1/sessions/{id}/messages", p.post)
	mux.HandleFunc("GET /v1/stream", p.socket)
	mux.HandleFunc("GET /metrics", writeMallocs)
	return mux
}

func respond(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// respondError responds with an error of Parley's form.
func respondError(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadGateway)
	respond(w, map[string]any{"error": map[string]string{"code": "provider_error", "message": err.Error()}})
}

// writeMallocs writes the only metric that the load generator reads.
func writeMallocs(w http.ResponseWriter, _ *http.Request) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(samples)
	fmt.Fprintf(w, "%s %d\n", mallocsMetric, samples[0].Value.Uint64()+samples[1].Value.Uint64())
}

// createSession returns a new id. The pipe keeps nothing under it.
func (p *Pipe) createSession(w http.ResponseWriter, _ *http.Request) {
	respond(w, map[string]string{"sessionId": fmt.Sprintf("session_%016d", p.ids.Add(1))})
}

// post relays a message to the model. It responds with the whole reply or, with streaming, at once.
func (p *Pipe) post(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Content   string
		Streaming bool
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		respondError(w, err)
		return
	}
	if body.Streaming {
		session := r.PathValue("id")
		go p.relay(context.WithoutCancel(r.Context()), session, body.Content)
		respond(w, map[string]string{"status": "streaming"})
		return
	}
	var text []byte
	usage, err := p.ask(r.Context(), body.Content, func(delta []byte) { text = append(text, delta...) })
	if err != nil {
		respondError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"status":"completed","content":"%s","usage":{"completion":%d}}`, text, usage)
}

// socket is one WebSocket.
func (p *Pipe) socket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{wire.Protocol}})
	if err != nil {
		return
	}
	var subscribed []string
	defer func() {
		p.unsubscribe(ws, subscribed)
		_ = ws.CloseNow()
	}()
	ctx := context.Background()
	if ws.Write(ctx, websocket.MessageText, []byte(`{"type":"welcome"}`)) != nil {
		return
	}
	for {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return
		}
		var request struct{ Type, SessionID, Content string }
		if json.Unmarshal(text, &request) != nil {
			return
		}
		switch request.Type {
		case wire.TypeSubscribe:
			p.subscribe(ws, request.SessionID)
			subscribed = append(subscribed, request.SessionID)
			_ = ws.Write(ctx, websocket.MessageText, []byte(`{"type":"subscribed"}`))
		case wire.TypeSend:
			_ = ws.Write(ctx, websocket.MessageText, []byte(`{"type":"sent"}`))
			go p.relay(ctx, request.SessionID, request.Content)
		}
	}
}

func (p *Pipe) subscribe(ws *websocket.Conn, session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topics[session] = append(p.topics[session], ws)
}

func (p *Pipe) unsubscribe(ws *websocket.Conn, sessions []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, session := range sessions {
		var rest []*websocket.Conn
		for _, other := range p.topics[session] {
			if other != ws {
				rest = append(rest, other)
			}
		}
		if p.topics[session] = rest; len(rest) == 0 {
			delete(p.topics, session)
		}
	}
}

// relay writes the reply to a message to the sockets of a session.
func (p *Pipe) relay(ctx context.Context, session, message string) {
	p.mu.Lock()
	viewers := p.topics[session] // needs no copy: no other goroutine changes the elements of this slice
	p.mu.Unlock()
	var frame []byte
	write := func() {
		for _, ws := range viewers {
			_ = ws.Write(ctx, websocket.MessageText, frame)
		}
	}
	usage, err := p.ask(ctx, message, func(delta []byte) {
		frame = append(append(append(frame[:0], `{"type":"message.delta","delta":"`...), delta...), `"}`...)
		write()
	})
	status := "completed"
	if err != nil {
		status = "failed"
	}
	frame = fmt.Appendf(frame[:0], `{"type":"message.%s","message":{"status":"%s","usage":{"completion":%d}}}`, status, status, usage)
	write()
}

// ask sends a message to the model. It calls write with the text of each delta, as the model escaped it, and returns the tokens
// of the reply.
func (p *Pipe) ask(ctx context.Context, message string, write func(delta []byte)) (tokens int, err error) {
	quoted, err := json.Marshal(message)
	if err != nil {
		return 0, err
	}
	body := `{"model":"` + modelName + `","messages":[{"role":"user","content":` + string(quoted) +
		`}],"stream":true,"stream_options":{"include_usage":true}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.model, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the model responded with %d", response.StatusCode)
	}
	return readEvents(response.Body, write)
}

// readEvents reads a streamed response to its end. It searches for two members instead of decoding each event, because decoding
// would cost more than all the rest.
func readEvents(body io.Reader, write func(delta []byte)) (tokens int, err error) {
	reader := bufio.NewReader(body)
	for done := false; ; {
		line, err := reader.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && done:
			return tokens, nil
		case err != nil:
			return tokens, fmt.Errorf("reading the model's response: %w", err)
		case bytes.HasPrefix(line, []byte("data: [DONE]")):
			done = true
		}
		if delta, ok := member(line, `"content":"`, '"'); ok {
			write(delta)
		} else if n, ok := member(line, `"completion_tokens":`, ','); ok {
			tokens, _ = strconv.Atoi(string(n))
		}
	}
}

// member returns the bytes between a name and the next end. It skips an end behind a backslash.
func member(line []byte, name string, end byte) (value []byte, ok bool) {
	at := bytes.Index(line, []byte(name))
	if at < 0 {
		return nil, false
	}
	value = line[at+len(name):]
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case end:
			return value[:i], true
		}
	}
	return nil, false
}
