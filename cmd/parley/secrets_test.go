package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	secretText  = "zweiundvierzig"         // part of every message
	secretQuery = "qqsecretqq"             // part of every invalid query string
	secretModel = "sk-modelkey-0123456789" // API key of the model server
)

// echoingModel returns a model server. It refuses messages with the word "refuse" and requests for embeddings, with errors that
// quote the request and its key. It replies to other messages like wordsModel.
func echoingModel(t *testing.T) *httptest.Server {
	model := newWordsModel(t, time.Millisecond)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "refuse") || strings.HasSuffix(r.URL.Path, "/embeddings") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": r.Header.Get("Authorization") + string(body)}})
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		model.answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// The test makes valid and invalid requests and searches the whole output of the server for secrets.
func TestOutput_AnyRequest_ContainsNoSecret(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"text", "json"} {
		t.Run(form, func(t *testing.T) {
			dir, model := t.TempDir(), echoingModel(t)
			env := []string{
				"PARLEY_ADMIN_KEY=" + declaredKey, "OPENAI_BASE_URL=" + model.URL, "OPENAI_API_KEY=" + secretModel, "PARLEY_MODEL=words",
				"PARLEY_EMBEDDING_MODEL=meanings", "PARLEY_LOG=" + form, "PARLEY_LOG_LEVEL=debug", "PARLEY_DRAIN_TIMEOUT=300ms",
			}
			p := serveIn(t, dir, env...)
			tickets := useServer(t, p)
			p.kill() // in the middle of a reply
			again := serveIn(t, dir, env...)
			useServer(t, again)
			again.signal(syscall.SIGTERM)
			again.wait()

			output := p.out.String() + p.errs.String() + again.out.String() + again.errs.String()
			for _, secret := range append(tickets, declaredKey, "svc_live_", "svc_test_", secretModel, secretText, secretQuery, "wörd-", "Bearer") {
				if i := strings.Index(output, secret); i >= 0 {
					t.Errorf("%q is in the output: …%s…", secret, output[max(0, i-200):min(len(output), i+100)])
				}
			}
			for _, expected := range []string{"draining", "a reply failed", "ended as interrupted", "the embedding model"} {
				if !strings.Contains(output, expected) {
					t.Errorf("%q is not in the output: too little was logged for this test to prove anything\n%s", expected, output)
				}
			}
			for line := range strings.Lines(again.errs.String()) {
				if form == "json" && !json.Valid([]byte(line)) {
					t.Errorf("a log line is not JSON: %s", line)
				}
			}
		})
	}
}

// useServer makes valid and invalid requests over REST, the WebSocket and plain TCP. When useServer returns, a reply is still
// streaming. It returns the tickets that it received.
func useServer(t *testing.T, p *process) (tickets []string) {
	session := p.session()
	messages := "/v1/sessions/" + session + "/messages"
	content := func(what string) map[string]any { return map[string]any{"content": what + " " + secretText} }
	p.must("POST", messages, content("say 5 words"))
	if status, answer, err := p.call("POST", "/v1/sessions/"+p.session()+"/messages", content("refuse")); err != nil || status != http.StatusBadGateway {
		t.Errorf("a reply that the model refuses: %d %v %v", status, answer, err)
	}
	semantic := p.must("POST", "/v1/sessions", map[string]any{
		"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"retentionPolicy": "semantic"},
	})["sessionId"].(string)
	p.must("POST", "/v1/sessions/"+semantic+"/messages", content("say 2 words")) // the model server refuses to embed this exchange
	if begun := p.must("POST", messages, map[string]any{"content": "say 5 " + secretText, "streaming": true}); begun["stream"] != nil {
		tickets = append(tickets, begun["stream"].(map[string]any)["ticket"].(string))
	}
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"GET", messages + "?limit=" + secretQuery, nil},
		{"GET", messages + "?cursor=" + secretQuery, nil},
		{"GET", "/nowhere?" + secretQuery, nil},
		{"GET", "/v1/nowhere?" + secretQuery, nil},
		{"GET", "/v1/stream?ticket=" + secretQuery, nil},
		{"PUT", "/v1/sessions?" + secretQuery, nil},
		{"POST", messages, map[string]any{"content": 7, secretText: secretText}},
		{"POST", messages + "?" + secretQuery, secretText},
		{"POST", "/v1/sessions", map[string]any{"userId": secretText}},
	} {
		if status, _, err := p.call(r.method, r.path, r.body); err == nil && status < 400 {
			t.Errorf("%s %s returned %d, want an error", r.method, r.path, status)
		}
	}
	sendBadHTTP(t, p)
	return append(tickets, watchWithTicket(t, p, session)...)
}

// sendBadHTTP sends malformed and incomplete HTTP requests over TCP.
func sendBadHTTP(t *testing.T, p *process) {
	for _, request := range []string{
		"GET /" + secretQuery + "\r\n\r\n",
		"GET /v1/sessions?" + secretQuery + " HTTP/1.1\r\nHost: a b\r\nAuthorization: Bearer " + declaredKey + "\r\n\r\n",
		"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + declaredKey + "\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"a\":\"" + secretText,
		"GET /v1/stream?ticket=" + secretQuery + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nAuthorization: Bearer " + declaredKey +
			"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + secretText + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, request)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
	}
}

// watchWithTicket opens a WebSocket with a ticket in the query. It sends a message and disconnects in the middle of the reply. It
// returns the tickets that it received.
func watchWithTicket(t *testing.T, p *process, session string) (tickets []string) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, status := p.openWith(func() (query string, header http.Header) {
		ticket := p.must("POST", "/v1/stream/tickets", map[string]any{})["ticket"].(string)
		tickets = append(tickets, ticket)
		return "?ticket=" + ticket, nil
	})
	if conn == nil {
		t.Fatalf("the handshake with a ticket gets %d", status)
	}
	defer func() { _ = conn.CloseNow() }()
	w := &viewer{t: t, conn: conn, ctx: ctx}
	w.write(map[string]any{"type": secretText})
	w.until("error")
	w.subscribe(secretText, session)
	w.write(map[string]any{"type": "send", "id": "2", "sessionId": session, "content": fmt.Sprintf("say %d %s", 1<<20, secretText)})
	for !strings.Contains(w.text, word(200)) {
		w.until("message.delta")
	}
	return tickets
}

// The server must start even if the named model's server is down. Replies then fail.
func TestServe_ModelServerDown_ReplyFails(t *testing.T) {
	t.Parallel()
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "OPENAI_BASE_URL=http://127.0.0.1:1/v1", "PARLEY_MODEL=some-model")
	session := p.session()
	status, answer, err := p.call("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "Hello?"})
	if err != nil || status != http.StatusBadGateway || answer["error"].(map[string]any)["code"] != "provider_error" {
		t.Errorf("%d %v %v", status, answer, err)
	}
	if count := p.must("GET", "/v1/sessions/"+session, nil)["messageCount"].(float64); count != 2 {
		t.Errorf("messageCount is %v, want 2", count)
	}
}
