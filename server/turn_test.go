package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/stream"
)

func messages(session string) string { return "/v1/sessions/" + session + "/messages" }

func content(text string, more ...any) map[string]any {
	body := map[string]any{"content": text}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return body
}

// watched is a store that tells of every send that takes a place in a queue.
type watched struct {
	conversation.Store
	queued chan string // its content
}

func (w *watched) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	begun, err := w.Store.BeginTurn(ctx, owner, turn)
	if begun.Queued != nil {
		w.queued <- turn.Content
	}
	return begun, err
}

func watch() (option, chan string) {
	queued := make(chan string, 1000)
	return withStore(func(s conversation.Store) conversation.Store { return &watched{s, queued} }), queued
}

func TestAnAnswerIsWaitedFor(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	answered := p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	if last := c.request.Messages[0]; len(c.request.Messages) != 1 || last.Role != "user" || last.Content != "hello" || c.request.MaxTokens != 1024 {
		t.Errorf("the model was asked %+v", c.request)
	}
	begun := p.must("GET", "/v1/sessions/"+session, nil)
	if begun["messageCount"] != 2.0 || begun["tokenUsage"].(map[string]any)["total"] != 0.0 {
		t.Errorf("when the turn has begun the session is %v", begun)
	}
	c.say("Hi ")
	c.say("there.")
	live := p.history(session)[1]
	if live.Status != "streaming" || live.Content != "Hi there." {
		t.Errorf("in mid-reply history shows %+v", live)
	}
	c.finish(stream.Result{FinishReason: "length", Usage: &stream.Usage{Prompt: 11, Completion: 7}}, nil)
	a := within(t, "the answer", answered)
	m := decodeInto[message](t, a)
	if a.status != 200 || m.Role != "assistant" || m.Content != "Hi there." || m.Status != "completed" || m.Tokens != 7 || m.FinishReason != "length" ||
		m.Usage["prompt"] != 11.0 || m.Usage["total"] != 18.0 || m.Usage["estimated"] != false {
		t.Errorf("answered %s", a.raw)
	}
	if got := p.history(session)[1]; fmt.Sprint(got) != fmt.Sprint(m) {
		t.Errorf("history has %+v, the answer was %+v", got, m)
	}
	usage := p.must("GET", "/v1/sessions/"+session, nil)["tokenUsage"]
	if fmt.Sprint(usage) != "map[completion:7 prompt:11 total:18]" {
		t.Errorf("the session's usage is %v", usage)
	}

	p.later("POST", messages(session), content("and now?"))
	c = model.next(t)
	if len(c.request.Messages) != 3 || c.request.Messages[1].Content != "Hi there." || c.request.Messages[1].Role != "assistant" {
		t.Errorf("the second time the model was asked %+v", c.request.Messages)
	}
}

func TestUsageIsEstimatedWithoutTheProviders(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	r := p.send(session, "12345678") // 2 tokens, 4 of the message, 3 of the prompt
	reply := count("You said: 12345678")
	want := fmt.Sprintf("map[completion:%d estimated:true prompt:9 total:%d]", reply, 9+reply)
	if fmt.Sprint(r["usage"]) != want || r["tokens"] != float64(reply) {
		t.Errorf("the reply's usage is %v, want %s", r["usage"], want)
	}
	p.send(session, "1234")
	second := count("You said: 1234")
	prompt := 9 + 3 + (2 + 4) + (reply + 4) + (1 + 4)
	want = fmt.Sprintf("map[completion:%d prompt:%d total:%d]", reply+second, prompt, prompt+reply+second)
	if s := p.must("GET", "/v1/sessions/"+session, nil); fmt.Sprint(s["tokenUsage"]) != want || s["messageCount"] != 4.0 {
		t.Errorf("the session's usage is %v, want %s", s, want)
	}
}

func TestAStreamingAnswerSaysWhereToWatch(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	r := p.begin(session, "hello")
	w := r["stream"].(map[string]any)
	if r["status"] != "streaming" || r["content"] != "" || r["tokens"] != 0.0 || r["role"] != "assistant" || r["sessionId"] != session {
		t.Errorf("answered %v", r)
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

func TestAReplyThatFailedKeepsItsText(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"502_provider_error": {&stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off", Cause: errors.New("secret")}, 502, "provider_error"},
		"504_provider_late":  {&stream.ModelError{Code: stream.CodeProviderTimeout, Message: "the model stopped answering"}, 504, "provider_timeout"},
		"502_some_error":     {errors.New("secret"), 502, "provider_error"},
	} {
		t.Run(name, func(t *testing.T) {
			answered := p.later("POST", messages(session), content("hello"))
			c := model.next(t)
			c.say("Half of")
			c.finish(stream.Result{}, test.err)
			a := within(t, "the answer", answered)
			checkError(t, a, test.status, test.code, "", "messageId")
			h := p.history(session)
			m := h[len(h)-1]
			if m.Status != "failed" || m.Content != "Half of" || m.Error["code"] != test.code || a.body["error"].(map[string]any)["messageId"] != m.MessageID {
				t.Errorf("history has %+v, answered %s", m, a.raw)
			}
			if strings.Contains(a.raw+fmt.Sprint(m), "secret") {
				t.Errorf("the cause is public: %s", a.raw)
			}
		})
	}
	p.later("POST", messages(session), content("again"))
	if c := model.next(t); len(c.request.Messages) != 4 {
		t.Errorf("replies that failed went to the model: %+v", c.request.Messages)
	}
}

func TestAModelThatIsSilentIsA504(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		session := p.session()
		answered := p.later("POST", messages(session), content("hello"))
		c := model.next(t)
		c.say("Half of")
		began := time.Now()
		a := <-answered
		checkError(t, a, 504, "provider_timeout", "", "messageId")
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestCancel(t *testing.T) {
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
		t.Errorf("acknowledged while the model's request was open: %s", a.raw)
	default:
	}
	if m := p.history(session)[1]; m.Status != "streaming" {
		t.Errorf("ended while the model's request was open: %+v", m)
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

func TestACancelThatTakesTooLongStaysWanted(t *testing.T) {
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
			t.Errorf("it took %v: %v", took, a.header)
		}
		close(model.linger)
		if m := p.must("POST", messages(session)+"/"+id+"/cancel", nil); m["status"] != "cancelled" {
			t.Errorf("it is %v", m)
		}
	})
}

func TestSendsAreAnsweredOneAfterTheOtherInTheirOrder(t *testing.T) {
	model := newDirected()
	option, queued := watch()
	p := start(t, model, option)
	session := p.session()
	answers := make([]<-chan answer, 20)
	for i := range answers {
		answers[i] = p.later("POST", messages(session), content(fmt.Sprint("message ", i), "streaming", i%3 == 1))
		if i > 0 {
			within(t, "a place in the queue", queued)
		} else if a := within(t, "a call", model.calls); a != nil {
			model.calls <- a
		}
	}
	for i, answered := range answers {
		c := model.next(t)
		if len(c.request.Messages) != 2*i+1 || len(model.calls) > 0 {
			t.Errorf("turn %d began with %d messages, %d more at once", i, len(c.request.Messages), len(model.calls))
		}
		c.say("You said: " + c.request.Messages[2*i].Content)
		c.end()
		a := within(t, "an answer", answered)
		if a.status != 200 || i%3 != 1 && a.body["content"] != fmt.Sprint("You said: message ", i) {
			t.Errorf("%d: %d %s", i, a.status, a.raw)
		}
	}
	checkOrder(t, p.history(session), 20)
}

func checkOrder(t *testing.T, history []message, turns int) {
	t.Helper()
	if len(history) != 2*turns {
		t.Fatalf("%d messages of %d turns", len(history), turns)
	}
	for i := range turns {
		asked, reply := history[2*i], history[2*i+1]
		if asked.Content != fmt.Sprint("message ", i) || asked.Role != "user" || reply.Role != "assistant" || reply.Content != "You said: "+asked.Content {
			t.Errorf("turn %d is %+v, %+v", i, asked, reply)
		}
	}
}

func TestSendsAtOnceAlternateWithTheirReplies(t *testing.T) {
	var running, most atomic.Int32
	model := modelFunc(func(ctx context.Context, r stream.Request, write func([]byte)) (stream.Result, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		return echo(ctx, r, write)
	})
	p := start(t, model)
	session := p.session()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a, err := p.do(context.Background(), "POST", messages(session), content(fmt.Sprint(i)))
			if err != nil || a.status != 200 || a.body["content"] != fmt.Sprint("You said: ", i) {
				t.Errorf("%d: %v %s", i, err, a.raw)
			}
		})
	}
	all.Wait()
	if h := p.history(session); most.Load() != 1 || len(h) != 40 {
		t.Errorf("%d at once, %d messages", most.Load(), len(h))
	}
	for i, m := range p.history(session) {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			t.Errorf("message %d is %+v", i, m)
		}
	}
}
