package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/stream"
)

// sdkSocket is a client of the subprotocol ai-sdk.v7. Unlike the real AI SDK, it can send invalid frames.
type sdkSocket struct {
	t    *testing.T
	conn *websocket.Conn
	log  frameLog
}

// dialSDK opens a socket with the subprotocol ai-sdk.v7. key is the secret of an API key.
func (p *parley) dialSDK(t *testing.T, key string) *sdkSocket {
	t.Helper()
	conn, response, err := websocket.Dial(t.Context(), strings.Replace(p.url, "http", "ws", 1)+"/v1/stream", &websocket.DialOptions{
		Subprotocols: []string{"ai-sdk.v7"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}, HTTPClient: p.client,
	})
	if err != nil {
		t.Fatal(err, response)
	}
	if conn.Subprotocol() != "ai-sdk.v7" {
		t.Fatalf("the subprotocol is %q", conn.Subprotocol())
	}
	conn.SetReadLimit(8 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &sdkSocket{t: t, conn: conn, log: frameLog{dialect: aiSDK}}
}

func (s *sdkSocket) text(frame string) {
	s.t.Helper()
	s.log.write([]byte(frame))
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sdkSocket) must(v any) {
	s.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	s.text(string(text))
}

func (s *sdkSocket) read() (sdkFrame, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	_, text, err := s.conn.Read(ctx)
	if err != nil {
		return sdkFrame{}, err
	}
	s.log.read(s.t, text)
	var f sdkFrame
	return f, json.Unmarshal(text, &f)
}

// next returns the next frame. The frame's requestId must be request. The parameter kind must be the type of the frame or of the
// frame's chunk.
func (s *sdkSocket) next(request, kind string) sdkFrame {
	s.t.Helper()
	f, err := s.read()
	if err != nil || f.RequestID != request || f.Type != kind && f.Chunk.Type != kind {
		s.t.Fatalf("got %+v, %v, want %s of %s", f, err, kind, request)
	}
	return f
}

// sendFrame returns a send frame with the members that the AI SDK sends.
func sendFrame(request, session string, messages ...any) map[string]any {
	return map[string]any{
		"type": "send", "requestId": request, "id": session, "trigger": "submit-message", "messages": messages,
		"headers": map[string]any{}, "body": map[string]any{},
	}
}

// chatMessage returns a message in the format of the AI SDK, with one part for each text.
func chatMessage(role string, texts ...string) map[string]any {
	parts := make([]any, 0, len(texts))
	for _, text := range texts {
		parts = append(parts, map[string]any{"type": "text", "text": text})
	}
	return map[string]any{"id": "m", "role": role, "parts": parts}
}

func requestFrame(kind, id, session string) map[string]any {
	return map[string]any{"type": kind, "requestId": id, "id": session}
}

func TestAISDKSocket_Send_UnusedMembersIgnored(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	s := p.dialSDK(t, adminKey)
	frame := sendFrame("1", session, chatMessage("user", "no"), chatMessage("assistant", "no"), chatMessage("user", "this", "and that"), chatMessage("assistant", "an approval"))
	last := frame["messages"].([]any)[2].(map[string]any)
	last["parts"] = append(last["parts"].([]any), map[string]any{"type": "data-x", "data": 1}, map[string]any{"type": "step-start"})
	last["metadata"], last["createdAt"], last["Text"] = nil, 7, []any{"x"}
	frame["metadata"], frame["future"], frame["ID"], frame["headers"] = []any{1}, map[string]any{"a": nil}, 5, nil
	s.must(frame)
	for _, kind := range []string{"start", "text-start", "text-delta", "text-end", "finish", "end"} {
		s.next("1", kind)
	}
	if h := p.history(session); len(h) != 2 || h[0].Content != "this\nand that" || h[1].Content != "You said: this\nand that" {
		t.Errorf("%+v", h)
	}
}

func TestAISDKSocket_InvalidRequest_ErrorAndStaysOpen(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	s := p.dialSDK(t, adminKey)
	change := func(name string, value any) map[string]any {
		frame := sendFrame("1", session, chatMessage("user", "hello"))
		if frame[name] = value; value == nil {
			delete(frame, name)
		}
		return frame
	}
	sendPart := func(part any) map[string]any {
		return sendFrame("1", session, map[string]any{"role": "user", "parts": []any{part}})
	}
	for name, c := range map[string]struct {
		frame map[string]any
		want  string
	}{
		"type missing":          {change("type", nil), "type is required."},
		"unknown type":          {change("type", "ping"), "type must be send, resume or abort."},
		"id missing":            {change("id", nil), "id is required."},
		"id of no session":      {change("id", "chat-1"), "The session does not exist or has expired."},
		"unknown session":       {change("id", noSession), "The session does not exist or has expired."},
		"trigger missing":       {change("trigger", nil), "trigger is required."},
		"unknown trigger":       {change("trigger", "x"), "trigger must be submit-message or regenerate-message."},
		"messages missing":      {change("messages", nil), "messages is required."},
		"messages is a string":  {change("messages", "x"), "messages must be a list."},
		"messages has a number": {change("messages", []any{1}), "messages must be a list of objects."},
		"no user's message":     {sendFrame("1", session, chatMessage("assistant", "x")), "messages must have a message with the role user."},
		"text missing":          {sendFrame("1", session, chatMessage("user")), "messages.parts.text is required."},
		"text of spaces":        {sendFrame("1", session, chatMessage("user", " ")), "messages.parts.text must not be empty or only spaces."},
		"text too long":         {sendFrame("1", session, chatMessage("user", strings.Repeat("é", 10_001))), "messages.parts.text must have at most 10,000 characters."},
		"NUL in the text":       {sendFrame("1", session, chatMessage("user", "a\x00b")), "messages.parts.text must not contain NUL."},
		"text is a number":      {sendPart(map[string]any{"type": "text", "text": 7}), "messages.parts.text must be a string."},
		"part is a number":      {sendPart(7), "messages.parts must be a list of objects."},
		"a file":                {sendPart(map[string]any{"type": "file", "url": "data:,x"}), "messages.parts must not have files: only text is supported."},
		"metadata is a string":  {sendFrame("1", session, map[string]any{"role": "user", "metadata": "x", "parts": []any{map[string]any{"type": "text", "text": "a"}}}), "messages.metadata must be an object of at most 16 KiB as JSON."},
		"resume of no session":  {requestFrame("resume", "1", noSession), "The session does not exist or has expired."},
	} {
		s.must(c.frame)
		if f := s.next("1", "error"); f.ErrorText != c.want {
			t.Errorf("%s: %q, want %q", name, f.ErrorText, c.want)
		}
		s.must(requestFrame("resume", "2", session)) // the socket still works
		s.next("2", "no-active")
	}
	if n := len(p.history(session)); n != 0 {
		t.Errorf("the invalid requests stored %d messages", n)
	}
}

func TestAISDKSocket_TenInvalidFrames_Closed1008(t *testing.T) {
	p := start(t, echo)
	s := p.dialSDK(t, adminKey)
	for i, frame := range []string{
		"", "{", "[]", "null", `{"type":"send"}`, `{"type":"send","requestId":7}`, `{"type":"send","requestId":""}`,
		`{"type":"send","requestId":"` + strings.Repeat("x", 129) + `"}`, `"hello"`, `{"requestId":null}`,
	} {
		s.text(frame)
		if i < 9 { // the server may close the socket before the last response
			s.next("", "error")
		}
	}
	_, err := s.read()
	if err == nil {
		_, err = s.read()
	}
	if websocket.CloseStatus(err) != 1008 {
		t.Error(err)
	}
}

func TestAISDKSocket_FrameOver1MiB_Closed1009(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	s := p.dialSDK(t, adminKey)
	sized := func(n int) string {
		frame, _ := json.Marshal(sendFrame("1", session, chatMessage("assistant", ""), chatMessage("user", "hello")))
		return strings.Replace(string(frame), `"text":""`, `"text":"`+strings.Repeat("x", n-len(frame))+`"`, 1)
	}
	s.text(sized(1 << 20))
	for _, kind := range []string{"start", "text-start", "text-delta", "text-end", "finish", "end"} {
		s.next("1", kind)
	}
	s.text(sized(1<<20 + 1))
	if _, err := s.read(); websocket.CloseStatus(err) != 1009 {
		t.Errorf("%v", err)
	}
}

func TestAISDKSocket_Abort_WithdrawsQueuedSend(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dialSDK(t, adminKey)
	s.must(sendFrame("1", session, chatMessage("user", "hello")))
	c := model.next(t)
	s.next("1", "start")
	s.must(sendFrame("2", session, chatMessage("user", "later")))
	s.must(map[string]any{"type": "abort", "requestId": "never was"})
	s.must(map[string]any{"type": "abort", "requestId": "2"})
	s.next("2", "end")
	c.say("Here.")
	c.end()
	for _, kind := range []string{"text-start", "text-delta", "text-end", "finish", "end"} {
		s.next("1", kind)
	}
	s.must(map[string]any{"type": "abort", "requestId": "1"}) // the request has ended, so this abort does nothing
	if h := p.history(session); len(h) != 2 || h[1].Status != "completed" {
		t.Errorf("%+v", h)
	}
	s.must(sendFrame("1", session, chatMessage("user", "again"))) // the requestId can be used again
	c = model.next(t)
	s.next("1", "start")
	s.must(sendFrame("1", session, chatMessage("user", "twice")))
	if f := s.next("1", "error"); f.ErrorText != "requestId belongs to a request that is still in progress." {
		t.Errorf("%+v", f)
	}
	c.end()
	for _, kind := range []string{"text-start", "text-delta", "text-end", "finish", "end"} {
		s.next("1", kind)
	}
}

func TestAISDKSocket_AbortThenResume_ReplyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		session := p.session()
		p.begin(session, "hello")
		c := model.next(t)
		c.say("One, ")
		s := p.dialSDK(t, adminKey)
		resumed := func(id string) {
			s.must(requestFrame("resume", id, session))
			for _, kind := range []string{"start", "start", "text-start", "text-delta"} {
				s.next(id, kind)
			}
		}
		resumed("1")
		s.must(map[string]any{"type": "abort", "requestId": "1"})
		resumed("2")
		time.Sleep(time.Second)
		select {
		case <-c.closed:
			t.Fatal("the reply was cancelled, though a page still shows it")
		default:
		}
		c.say("two.")
		s.next("2", "text-delta")
		s.must(map[string]any{"type": "abort", "requestId": "2"})
		for _, kind := range []string{"text-end", "abort", "end"} {
			s.next("2", kind)
		}
		within(t, "the end of the model's request", c.closed)
		if m := p.history(session)[1]; m.Status != "cancelled" || m.Content != "One, two." {
			t.Errorf("%+v", m)
		}
		_ = s.conn.CloseNow()
	})
}

func TestAISDKSocket_AbortThenFailedResume_ReplyCancelled(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	p.begin(session, "hello")
	model.next(t)
	s := p.dialSDK(t, adminKey)
	for _, id := range []string{"1", "2"} {
		s.must(requestFrame("resume", id, session))
		s.next(id, "start")
		s.next(id, "start") // the chunk of the type start
	}
	s.must(map[string]any{"type": "abort", "requestId": "1"})
	s.must(requestFrame("resume", "2", session)) // fails, because the requestId is in use
	s.next("2", "error")
	s.next("2", "abort")
}

func TestAISDKSocket_MissingScope_Error(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	reader, writer := p.dialSDK(t, p.key("default", auth.ReadMessages)), p.dialSDK(t, p.key("default", auth.WriteMessages))
	reader.must(sendFrame("1", session, chatMessage("user", "hello")))
	reader.next("1", "error")
	writer.must(requestFrame("resume", "1", session))
	writer.next("1", "error")
	// As over REST, a sender gets the reply without the scope read:messages.
	writer.must(sendFrame("2", session, chatMessage("user", "hello")))
	c := model.next(t)
	writer.next("2", "start")
	reader.must(requestFrame("resume", "2", session))
	reader.next("2", "start")
	reader.next("2", "start") // the chunk of the type start
	reader.must(map[string]any{"type": "abort", "requestId": "2"})
	if f := reader.next("2", "error"); f.ErrorText != "The key lacks the scope write:messages." {
		t.Errorf("%+v", f)
	}
	c.end()
	for _, kind := range []string{"text-start", "text-delta", "text-end", "finish", "end"} {
		writer.next("2", kind)
	}
}

func TestAISDKSocket_Sends_RateLimitedAsRequests(t *testing.T) {
	p := start(t, echo, withTiers(t, `{"pro":{"requestsPerMinute":10}}`))
	session := p.session()
	s := p.dialSDK(t, adminKey)
	for sent := 0; ; sent++ {
		s.must(sendFrame("1", session, chatMessage("user", "hello")))
		f, err := s.read()
		for err == nil && f.Type == "chunk" {
			f, err = s.read()
		}
		switch {
		case err != nil || sent > 10:
			t.Fatalf("%d sends, %+v, %v", sent, f, err)
		case f.Type == "error":
			if !regexp.MustCompile(`^The limit of 10 requests a minute is reached\. Try again in \d+ s\.$`).MatchString(f.ErrorText) || sent == 0 {
				t.Errorf("after %d sends: %+v", sent, f)
			}
			return
		}
	}
}

func TestAISDKSocket_RevokedKey_ReplyGoesOn(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	key, secret := p.newKey("default", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.WriteMessages, auth.ReadMessages}})
	s := p.dialSDK(t, secret)
	s.must(sendFrame("1", session, chatMessage("user", "hello")))
	c := model.next(t)
	s.next("1", "start")
	p.must("DELETE", "/v1/keys/"+key.ID, nil)
	if f, err := s.read(); websocket.CloseStatus(err) != 4401 {
		t.Errorf("%+v, %v", f, err)
	}
	c.say("To the end.")
	c.end()
	again := p.dialSDK(t, adminKey)
	again.must(requestFrame("resume", "1", session))
	again.next("1", "start")
	for _, kind := range []string{"start", "text-start"} {
		again.next("1", kind)
	}
	if f := again.next("1", "text-delta"); f.Chunk.Delta != "To the end." {
		t.Errorf("%+v", f)
	}
}

func TestAISDKSocket_ClearOrDelete_ErrorSaysWhich(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	for want, path := range map[string]func(string) string{
		"The session's history was cleared.": messages,
		"The session was deleted.":           func(session string) string { return "/v1/sessions/" + session },
	} {
		session := p.session()
		s := p.dialSDK(t, adminKey)
		s.must(sendFrame("1", session, chatMessage("user", "hello")))
		c := model.next(t)
		c.say("Half of")
		for _, kind := range []string{"start", "text-start", "text-delta"} {
			s.next("1", kind)
		}
		p.must("DELETE", path(session), nil)
		if f := s.next("1", "error"); f.ErrorText != want {
			t.Errorf("%+v", f)
		}
		if strings.HasSuffix(path(session), "messages") {
			s.must(requestFrame("resume", "2", session))
			s.next("2", "no-active")
		}
	}
}

func TestAISDKSocket_Drain_ClosedAfterReply(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dialSDK(t, adminKey)
	s.must(sendFrame("1", session, chatMessage("user", "hello")))
	c := model.next(t)
	s.next("1", "start")
	p.handler.BeginDrain()
	drained := make(chan struct{})
	go func() { defer close(drained); p.handler.DrainSockets(t.Context()) }()
	c.say("To the end.")
	c.end()
	for _, kind := range []string{"text-start", "text-delta", "text-end", "finish", "end"} {
		s.next("1", kind)
	}
	if _, err := s.read(); websocket.CloseStatus(err) != 1012 {
		t.Errorf("%v", err)
	}
	within(t, "the end of the drain", drained)
}

func TestAISDKSocket_ServiceDrained_ReplyInterrupted(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dialSDK(t, adminKey)
	s.must(sendFrame("1", session, chatMessage("user", "hello")))
	model.next(t)
	s.next("1", "start")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p.drain(now)
	if f := s.next("1", "finish"); f.Chunk.FinishReason != "interrupted" {
		t.Errorf("%+v", f)
	}
	s.next("1", "end")
	s.must(sendFrame("2", session, chatMessage("user", "hello")))
	s.next("2", "error")
}

func TestEvents_AISDKFormat_ShowsWholeReply(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	stream := func(reply string) <-chan answer { // with format=ai-sdk, the server ignores Last-Event-ID
		return p.later("GET", messages(session)+"/"+reply+"/stream?format=ai-sdk", nil, "Last-Event-ID", "anything")
	}
	for name, end := range map[string]func(reply string, c *call) string{
		`{"type":"finish","finishReason":"stop"}`: func(_ string, c *call) string { c.end(); return "completed" },
		`{"type":"abort"}`: func(reply string, _ *call) string {
			p.must("POST", messages(session)+"/"+reply+"/cancel", nil)
			return "cancelled"
		},
		`{"type":"error","errorText":"the model broke off"}`: func(_ string, c *call) string { c.finish(brokenOff()); return "failed" },
	} {
		reply := p.begin(session, "hello")["messageId"].(string)
		c := model.next(t)
		c.say("Grüße\n")
		live := stream(reply)
		state := end(reply, c)
		want := fmt.Sprintf("data: {\"type\":\"start\",\"messageId\":%q}\n\ndata: {\"type\":\"text-start\",\"id\":%q}\n\n"+
			"data: {\"type\":\"text-delta\",\"id\":%q,\"delta\":\"Grüße\\n\"}\n\ndata: {\"type\":\"text-end\",\"id\":%q}\n\ndata: %s\n\ndata: [DONE]\n\n",
			reply, reply, reply, reply, name)
		for when, from := range map[string]<-chan answer{"live": live, "ended": stream(reply)} {
			a := within(t, "the end of the event stream", from)
			if a.status != 200 || a.header.Get("x-vercel-ai-ui-message-stream") != "v1" || !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") || a.raw != want {
				t.Errorf("%s, %s: %d %v %q, want %q", state, when, a.status, a.header, a.raw, want)
			}
		}
	}
	if a := within(t, "the response", stream(p.history(session)[0].MessageID)); a.status != 204 {
		t.Errorf("the stream of a user's message has the status %d, want 204", a.status)
	}
	path := messages(session) + "/" + p.history(session)[1].MessageID + "/stream?format="
	for _, format := range []string{"", "xml", "AI-SDK", "ai-sdk&format=ai-sdk"} {
		checkError(t, p.call("GET", path+format, nil), 400, "validation_error", "format")
	}
}

func brokenOff() (stream.Result, error) {
	return stream.Result{}, &stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off"}
}

func TestHandshake_BothSubprotocols_ParleyV1Chosen(t *testing.T) {
	p := start(t, echo)
	for offer, want := range map[string]string{"parley.v1,ai-sdk.v7": "parley.v1", "ai-sdk.v7,parley.v1": "parley.v1", "x,ai-sdk.v7,ticket.x": "ai-sdk.v7"} {
		conn, _, err := websocket.Dial(t.Context(), p.url+"/v1/stream", &websocket.DialOptions{
			Subprotocols: strings.Split(offer, ","), HTTPHeader: http.Header{"Authorization": {"Bearer " + adminKey}}, HTTPClient: p.client,
		})
		if err != nil {
			t.Fatal(err)
		}
		if conn.Subprotocol() != want {
			t.Errorf("%s: %s", offer, conn.Subprotocol())
		}
		_ = conn.CloseNow()
	}
	checkError(t, p.call("GET", "/v1/stream", nil, upgrade("Sec-WebSocket-Protocol", "ai-sdk.v6")...), 400, "validation_error", "Sec-WebSocket-Protocol")
}
