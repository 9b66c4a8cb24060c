package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

const (
	held = 5  // words after which the tests let the model pause
	long = 60 // words of a whole reply
)

// viewer is a WebSocket that subscribes to at most one session.
type viewer struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context
	text string // text of all deltas so far
}

// subscribe opens a WebSocket and subscribes to the session. If session is "", it does not subscribe.
func subscribe(t *testing.T, p *process, session string) *viewer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	conn, status := p.open()
	if conn == nil {
		t.Fatalf("the handshake gets %d\n%s", status, p.errs)
	}
	w := &viewer{t: t, conn: conn, ctx: ctx}
	w.until("welcome")
	if session != "" {
		w.subscribe("1", session)
	}
	return w
}

// subscribe subscribes to the session. It repeats a request that a busy store refuses.
func (w *viewer) subscribe(id, session string) {
	w.t.Helper()
	for late := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		w.write(map[string]any{"type": "subscribe", "id": id, "sessionId": session})
		frame := w.until("subscribed", "error")
		if frame["type"] == "subscribed" {
			return
		}
		if frame["error"].(map[string]any)["code"] != "service_unavailable" || time.Now().After(late) {
			w.t.Fatalf("the subscription gets %v", frame)
		}
	}
}

func (w *viewer) write(frame map[string]any) {
	w.t.Helper()
	body, err := json.Marshal(frame)
	if err == nil {
		err = w.conn.Write(w.ctx, websocket.MessageText, body)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next frame, or the error of reading it.
func (w *viewer) next() (frame map[string]any, err error) {
	_, body, err := w.conn.Read(w.ctx)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(body, &frame); err != nil {
		w.t.Fatal(err)
	}
	if frame["type"] == "message.delta" {
		w.text += frame["delta"].(string)
	}
	return frame, nil
}

// until skips frames until a frame of one of the types arrives, and returns that frame.
func (w *viewer) until(types ...string) map[string]any {
	w.t.Helper()
	for {
		frame, err := w.next()
		if err != nil {
			w.t.Fatalf("no %s frame arrived: %v", strings.Join(types, " or "), err)
		}
		if slices.Contains(types, frame["type"].(string)) {
			return frame
		}
	}
}

// untilText reads frames until the deltas add up to text.
func (w *viewer) untilText(text string) {
	w.t.Helper()
	for w.text != text {
		if w.until("message.delta"); !strings.HasPrefix(text, w.text) {
			w.t.Fatalf("the deltas add up to %q, want %q", w.text, text)
		}
	}
}

// end reads frames until the server closes the socket. The close code must be 1012. end returns the last frame.
func (w *viewer) end() (last map[string]any) {
	w.t.Helper()
	for {
		frame, err := w.next()
		if err == nil {
			last = frame
			continue
		}
		if code := websocket.CloseStatus(err); code != websocket.StatusServiceRestart {
			w.t.Errorf("the socket was closed with %v (%v), want 1012", code, err)
		}
		return last
	}
}

// response is the outcome of a request.
type response struct {
	status int
	body   map[string]any
	err    error
}

// send posts a message in the background, like a caller who waits for the whole reply.
func send(p *process, session string) <-chan response {
	begun := make(chan struct{})
	close(begun)
	return sendUntil(p, session, begun)
}

// sendUntil does the same as send, and repeats a request that gets 503 until begun is closed. A busy store can refuse the first
// requests.
func sendUntil(p *process, session string, begun <-chan struct{}) <-chan response {
	result, key := make(chan response, 1), rand.Text()
	go func() {
		for {
			status, _, body, err := p.request("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "say 60 words"},
				"Idempotency-Key", key)
			select {
			case <-begun:
			case <-time.After(100 * time.Millisecond):
				if err == nil && status == http.StatusServiceUnavailable {
					continue
				}
			}
			result <- response{status, body, err}
			return
		}
	}()
	return result
}

// scene is a server with a model that pauses in the middle of a reply. A caller waits for the whole reply, and a viewer has
// received the text so far.
type scene struct {
	*process
	dir     string
	model   *wordsModel
	session string
	viewer  *viewer
	caller  <-chan response
}

func newScene(t *testing.T, env ...string) *scene {
	t.Helper()
	s := &scene{dir: t.TempDir(), model: newHeldModel(t, held)}
	s.process = serveIn(t, s.dir, append(s.model.env(), env...)...)
	s.session = s.process.session()
	s.viewer = subscribe(t, s.process, s.session)
	begun := make(chan struct{})
	s.caller = sendUntil(s.process, s.session, begun)
	s.viewer.untilText(words(held))
	close(begun)
	return s
}

// restart starts a server on the same store. It returns the reply from the history.
func (s *scene) restart(t *testing.T) map[string]any {
	t.Helper()
	p := serveIn(t, s.dir, s.model.env()...)
	messages := p.must("GET", "/v1/sessions/"+s.session+"/messages", nil)["data"].([]any)
	if len(messages) != 2 || messages[1].(map[string]any)["content"] != "say 60 words" {
		t.Fatalf("after the restart, the history is %v", messages)
	}
	return messages[0].(map[string]any)
}

func TestDrain_LiveReply_CompletesAndNewSendsGet503(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	other := s.process.session()
	idle, queued := subscribe(t, s.process, other), send(s.process, s.session)
	s.signal(syscall.SIGTERM)

	if frame := s.viewer.until("draining"); frame["reconnectAfterMs"].(float64) <= 0 {
		t.Errorf("the draining frame is %v, want a positive reconnectAfterMs", frame)
	}
	if last := idle.end(); last["type"] != "draining" {
		t.Errorf("the last frame of an idle socket is %v", last)
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 503, "/v1/sessions/" + s.session: 200, "/v1/sessions/" + s.session + "/messages": 200,
	} {
		status, header, body, err := s.request("GET", path, nil)
		if err != nil || status != want || (header.Get("Retry-After") != "") != (want == 503) {
			t.Errorf("GET %s: %d %v, Retry-After %q, %v", path, status, body, header.Get("Retry-After"), err)
		}
	}
	status, header, body, err := s.request("POST", "/v1/sessions/"+other+"/messages", map[string]any{"content": "say 1 word"})
	if err != nil || status != 503 || header.Get("Retry-After") == "" || body["error"].(map[string]any)["code"] != "service_unavailable" {
		t.Errorf("a new send: %d %v, Retry-After %q, %v", status, body, header.Get("Retry-After"), err)
	}
	if a := <-queued; a.err != nil || a.status != 503 {
		t.Errorf("a queued send: %+v", a)
	}
	s.viewer.write(map[string]any{"type": "send", "id": "2", "sessionId": other, "content": "say 1 word"})
	if refused := s.viewer.until("error"); refused["error"].(map[string]any)["code"] != "service_unavailable" {
		t.Errorf("a send over the socket: %v", refused)
	}
	if status, header, _, err = s.request("GET", "/v1/stream", nil); err != nil || status == 200 {
		t.Errorf("a new handshake: %d %v %v", status, header, err)
	}

	s.model.allow(long)
	last := s.viewer.end()
	if last["type"] != "message.completed" || last["message"].(map[string]any)["content"] != words(long) || s.viewer.text != words(long) {
		t.Errorf("the last frame is %v; the deltas add up to %q", last, s.viewer.text)
	}
	if a := <-s.caller; a.err != nil || a.status != 200 || a.body["status"] != "completed" || a.body["content"] != words(long) {
		t.Errorf("the caller got %+v", a)
	}
	if code := s.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.errs)
	}
	if reply := s.restart(t); reply["status"] != "completed" || reply["content"] != words(long) {
		t.Errorf("after the restart: %v", reply)
	}
}

func TestDrain_Timeout_ReplyInterrupted(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			s := newScene(t, "PARLEY_DRAIN_TIMEOUT=300ms")
			began := time.Now()
			s.signal(signal)
			last := s.viewer.end()
			if last["type"] != "message.interrupted" || last["message"].(map[string]any)["content"] != words(held) {
				t.Errorf("the last frame is %v", last)
			}
			if a := <-s.caller; a.err != nil || a.status != 200 || a.body["status"] != "interrupted" || a.body["content"] != words(held) {
				t.Errorf("the caller got %+v", a)
			}
			if code := s.wait().ExitCode(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, s.errs)
			}
			if took := time.Since(began); took < 300*time.Millisecond {
				t.Errorf("the drain took %v, want at least its timeout of 300 ms", took)
			}
			if reply := s.restart(t); reply["status"] != "interrupted" || reply["content"] != words(held) {
				t.Errorf("after the restart: %v", reply)
			}
		})
	}
}

func TestDrain_SecondSignal_KillsProcess(t *testing.T) {
	t.Parallel()
	for _, signals := range [][2]syscall.Signal{
		{syscall.SIGTERM, syscall.SIGTERM}, {syscall.SIGINT, syscall.SIGINT}, {syscall.SIGINT, syscall.SIGTERM},
	} {
		t.Run(signals[0].String()+", "+signals[1].String(), func(t *testing.T) {
			s := newScene(t)
			s.signal(signals[0])
			s.viewer.until("draining")
			s.signal(signals[1])
			status := s.wait().Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != signals[1] {
				t.Errorf("the process ended with %v", status)
			}
			if a := <-s.caller; a.err == nil {
				t.Errorf("the caller got %+v, want a broken connection", a)
			}
			reply := s.restart(t)
			if text := reply["content"].(string); reply["status"] != "interrupted" || !strings.HasPrefix(words(held), text) {
				t.Errorf("after the restart: %v", reply)
			}
		})
	}
}

// A client that no longer reads does not acknowledge a close frame. The server waits a few seconds for the acknowledgement, not
// the whole drain timeout.
func TestDrain_SilentClient_ExitsBeforeTimeout(t *testing.T) {
	t.Parallel()
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey, "PARLEY_DRAIN_TIMEOUT=1h")
	subscribe(t, p, p.session())
	p.signal(syscall.SIGTERM)
	if code := p.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.errs)
	}
}

// An SSE stream is a pending request, so the server serves the stream until the reply ends.
func TestDrain_SSE_StreamsToTerminalEvent(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	messages := s.must("GET", "/v1/sessions/"+s.session+"/messages", nil)["data"].([]any)
	id := messages[0].(map[string]any)["messageId"].(string)
	request, err := http.NewRequest("GET", s.url+"/v1/sessions/"+s.session+"/messages/"+id+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+declaredKey)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s.signal(syscall.SIGTERM)
	s.viewer.until("draining")
	s.model.allow(long)
	s.viewer.end()
	seen, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("the SSE stream was cut off: %v", err)
	}
	if !strings.Contains(string(seen), "event: message.completed\n") {
		t.Errorf("the SSE stream has no message.completed:\n%s", seen)
	}
	if code := s.wait().ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.errs)
	}
}
