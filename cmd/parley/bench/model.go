package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ScriptedModel is a model server with OpenAI's chat completions API. It replies what the newest message asks for: "say 200 every
// 20ms" gets 200 tokens with 20 ms between them. A message without such a request gets Default. It keeps no state.
type ScriptedModel struct{ Default Reply }

const (
	// modelName is the only model in the list of models.
	modelName = "scripted"
	// token is the text of each token.
	token = "word "
	// maxPrompt limits the size of a request: a window of a million tokens fits.
	maxPrompt = 64 << 20
	// promptTokens is the prompt usage that the model reports.
	promptTokens = 10
)

// These are the events of a streamed response.
const (
	deltaEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted",` +
		`"choices":[{"index":0,"delta":{"content":"` + token + `"},"finish_reason":null}]}` + "\n\n"
	finishEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted",` +
		`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	usageEvent = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[],` +
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}` + "\n\ndata: [DONE]\n\n"
)

// ServeHTTP answers GET …/models and POST …/chat/completions.
func (m ScriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/models"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model"}]}`, modelName)
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPrompt))
		if err != nil {
			http.Error(w, `{"error":{"message":"the request cannot be read"}}`, http.StatusBadRequest)
			return
		}
		reply := m.asked(body)
		if bytes.Contains(body, []byte(`"stream":true`)) {
			stream(r.Context(), w, reply)
			return
		}
		complete(r.Context(), w, reply)
	default:
		http.NotFound(w, r)
	}
}

// asked returns the reply that the last instruction in a request asks for.
func (m ScriptedModel) asked(body []byte) Reply {
	reply := m.Default
	at := bytes.LastIndex(body, []byte("say "))
	if at < 0 {
		return reply
	}
	instruction, _, _ := strings.Cut(string(body[at:min(len(body), at+60)]), `"`)
	words := strings.Fields(instruction) // say, N, every, interval
	if len(words) < 2 {
		return reply
	}
	if n, err := strconv.Atoi(words[1]); err == nil && n >= 0 {
		reply = Reply{Tokens: n}
	}
	if len(words) == 4 && words[2] == "every" {
		if d, err := time.ParseDuration(words[3]); err == nil && d >= 0 {
			reply.Interval = d
		}
	}
	return reply
}

// stream writes a reply as events, each token in a packet of its own. The delay of a token does not delay the tokens after it.
func stream(ctx context.Context, w http.ResponseWriter, reply Reply) {
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	delta := []byte(deltaEvent)
	for i, begun := 0, time.Now(); i < reply.Tokens; i++ {
		if reply.Interval > 0 && i > 0 && !pause(ctx, time.Until(begun.Add(time.Duration(i)*reply.Interval))) {
			return
		}
		if _, err := w.Write(delta); err != nil {
			return
		}
		if flusher.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, finishEvent)
	fmt.Fprintf(w, usageEvent, promptTokens, reply.Tokens, promptTokens+reply.Tokens)
}

// complete writes a reply as one JSON document, after the time that its tokens take.
func complete(ctx context.Context, w http.ResponseWriter, reply Reply) {
	if !pause(ctx, reply.length()) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"scripted","choices":[{"index":0,"message":`+
		`{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`,
		strings.Repeat(token, reply.Tokens), promptTokens, reply.Tokens, promptTokens+reply.Tokens)
}
