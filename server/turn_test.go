package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/stream"
)

// messages returns the path of a session's messages.
func messages(session string) string { return "/v1/sessions/" + session + "/messages" }

// content returns the body of a send. The parameter more holds alternating names and values of further members.
func content(text string, more ...any) map[string]any {
	body := map[string]any{"content": text}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// queueNotifier is a store that sends the content of each queued message to a channel. When the channel is full, it sends nothing:
// at the end of a test, sends that nobody awaits may be queued again and again.
type queueNotifier struct {
	conversation.Store
	queued chan string
}

func (w *queueNotifier) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	begun, err := w.Store.BeginTurn(ctx, owner, turn)
	if begun.Queued != nil {
		select {
		case w.queued <- turn.Content:
		default:
		}
	}
	return begun, err
}

// notifyQueued returns an option that adds a queueNotifier, and the notifier's channel.
func notifyQueued() (option, chan string) {
	queued := make(chan string, 1000)
	return withStore(func(s conversation.Store) conversation.Store { return &queueNotifier{s, queued} }), queued
}

func TestSend_NotStreaming_ReturnsWholeReply(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	answered := p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	if last := c.request.Messages[0]; len(c.request.Messages) != 1 || last.Role != "user" || last.Content != "hello" || c.request.MaxTokens != 1024 {
		t.Errorf("the model got %+v", c.request)
	}
	begun := p.must("GET", "/v1/sessions/"+session, nil)
	if begun["messageCount"] != 2.0 || begun["tokenUsage"].(map[string]any)["total"] != 0.0 {
		t.Errorf("after the turn began, the session is %v", begun)
	}
	c.say("Hi ")
	c.say("there.")
	live := p.history(session)[1]
	if live.Status != "streaming" || live.Content != "Hi there." {
		t.Errorf("in mid-reply, history has %+v", live)
	}
	c.finish(stream.Result{FinishReason: "length", Usage: &stream.Usage{Prompt: 11, Completion: 7}}, nil)
	a := within(t, "the response", answered)
	m := decodeInto[message](t, a)
	if a.status != 200 || m.Role != "assistant" || m.Content != "Hi there." || m.Status != "completed" || m.Tokens != 3 || m.FinishReason != "length" ||
		m.Usage["prompt"] != 11.0 || m.Usage["total"] != 18.0 || m.Usage["estimated"] != false {
		t.Errorf("got %s", a.raw)
	}
	if got := p.history(session)[1]; fmt.Sprint(got) != fmt.Sprint(m) {
		t.Errorf("history has %+v, but the response was %+v", got, m)
	}
	usage := p.must("GET", "/v1/sessions/"+session, nil)["tokenUsage"]
	if fmt.Sprint(usage) != "map[completion:7 prompt:11 total:18]" {
		t.Errorf("the session's usage is %v", usage)
	}

	p.later("POST", messages(session), content("and now?"))
	c = model.next(t)
	if len(c.request.Messages) != 3 || c.request.Messages[1].Content != "Hi there." || c.request.Messages[1].Role != "assistant" {
		t.Errorf("in its second call, the model got %+v", c.request.Messages)
	}
}

func TestSend_Streaming_ReturnsCursorAndTicket(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	r := p.begin(session, "hello")
	w := r["stream"].(map[string]any)
	if r["status"] != "streaming" || r["content"] != "" || r["tokens"] != 0.0 || r["role"] != "assistant" || r["sessionId"] != session {
		t.Errorf("got %v", r)
	}
	if w["url"] != strings.Replace(p.url, "http", "ws", 1)+"/v1/stream" || w["cursor"] == "" || w["ticket"] == "" || !timestamp.MatchString(w["ticketExpiresAt"].(string)) {
		t.Errorf("stream is %v", w)
	}
	c := model.next(t)
	c.say("Hi.")
	c.end()
	s := p.dial()
	s.mustSubscribe(session, w["cursor"].(string))
	if f := s.next("message.created"); f.Message.MessageID != r["messageId"] {
		t.Errorf("created %+v", f)
	}
	if f := s.next("message.delta"); f.Delta != "Hi." {
		t.Errorf("delta %+v", f)
	}
	s.next("message.completed")
}

func TestSend_ModelFails_TextKept(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	for name, test := range map[string]struct {
		text   string
		err    error
		status int
		code   string
	}{
		"502_provider_error":   {"Half of", &stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off", Cause: errors.New("secret")}, 502, "provider_error"},
		"504_provider_timeout": {"Half of", &stream.ModelError{Code: stream.CodeProviderTimeout, Message: "the model stopped answering"}, 504, "provider_timeout"},
		"502_unknown_error":    {"Half of", errors.New("secret"), 502, "provider_error"},
		"502_empty_reply":      {"", nil, 502, "empty_reply"},
	} {
		t.Run(name, func(t *testing.T) {
			answered := p.later("POST", messages(session), content("hello"))
			c := model.next(t)
			c.say(test.text)
			c.finish(stream.Result{}, test.err)
			a := within(t, "the response", answered)
			checkError(t, a, test.status, test.code, "", "messageId")
			h := p.history(session)
			m := h[len(h)-1]
			if m.Status != "failed" || m.Content != test.text || m.Error["code"] != test.code || a.body["error"].(map[string]any)["messageId"] != m.MessageID {
				t.Errorf("history has %+v, the response is %s", m, a.raw)
			}
			if strings.Contains(a.raw+fmt.Sprint(m), "secret") {
				t.Errorf("the response or the history contains the cause: %s", a.raw)
			}
		})
	}
	p.later("POST", messages(session), content("again"))
	if c := model.next(t); len(c.request.Messages) != 4 { // three messages whose replies failed with text, and the new message
		t.Errorf("replies that failed, or a message whose reply has no text, went to the model: %+v", c.request.Messages)
	}
}

func TestCancel_LiveReply_ResponseWaitsForModel(t *testing.T) {
	model := newDirected()
	model.linger = make(chan struct{})
	p := start(t, model)
	session := p.session()
	answered := p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	c.say("Half of")
	id := p.history(session)[1].MessageID
	path := messages(session) + "/" + id + "/cancel"
	cancelled := p.later("POST", path, nil)
	<-c.ctx.Done()
	select {
	case a := <-cancelled:
		t.Errorf("the cancel got its response while the model's request was open: %s", a.raw)
	default:
	}
	if m := p.history(session)[1]; m.Status != "streaming" {
		t.Errorf("the reply ended while the model's request was open: %+v", m)
	}
	close(model.linger)
	<-c.closed
	for name, from := range map[string]<-chan answer{"cancel": cancelled, "send": answered} {
		a := within(t, name, from)
		if m := decodeInto[message](t, a); a.status != 200 || m.Status != "cancelled" || m.Content != "Half of" || m.MessageID != id {
			t.Errorf("%s: %d %s", name, a.status, a.raw)
		}
	}
	before := p.snapshot(session)
	if again := p.must("POST", path, `{}`); again["status"] != "cancelled" || p.snapshot(session) != before {
		t.Errorf("cancelled again: %v", again)
	}
}

func TestCancel_ModelDoesNotStop_503ThenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		model.linger = make(chan struct{})
		p := startPiped(t, model)
		session := p.session()
		id := p.begin(session, "hello")["messageId"].(string)
		model.next(t)
		began := time.Now()
		a := p.call("POST", messages(session)+"/"+id+"/cancel", nil)
		checkError(t, a, 503, "service_unavailable", "", "retryAfter")
		if took := time.Since(began); took != 5*time.Second || a.header.Get("Retry-After") == "" {
			t.Errorf("the response took %v and has the headers %v", took, a.header)
		}
		close(model.linger)
		if m := p.must("POST", messages(session)+"/"+id+"/cancel", nil); m["status"] != "cancelled" {
			t.Errorf("the reply is %v, want cancelled", m)
		}
	})
}
