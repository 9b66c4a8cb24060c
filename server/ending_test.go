package server_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// viewerInReply opens a socket and subscribes to a session from a cursor. It reads up to the first delta of the reply.
func (p *parley) viewerInReply(session, cursor string) *socket {
	p.t.Helper()
	s := p.dial()
	s.mustSubscribe(session, cursor)
	s.next("message.created")
	s.next("message.delta")
	return s
}

func TestDeleteSession_InMidReply_ReplyAndQueuedSendEnd(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	session := p.session()
	cursor := p.must("GET", messages(session), nil)["stream"].(map[string]any)["cursor"].(string)
	answered := p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	c.say("Half of")
	waiting := p.later("POST", messages(session), content("waiting"))
	within(t, "the send to be queued", queued)
	s := p.dial()
	s.mustSubscribe(session, cursor)
	s.next("message.created")
	s.next("message.created")
	s.next("message.delta")
	p.must("DELETE", "/v1/sessions/"+session, nil)
	within(t, "the end of the model's request", c.closed)
	s.next("session.deleted")
	checkError(t, within(t, "the response", answered), 404, "session_not_found", "")
	checkError(t, within(t, "the response to the queued send", waiting), 404, "session_not_found", "")
	s.must(map[string]any{"type": "ping", "id": "p"})
	s.next("pong") // no frame came between session.deleted and the pong
	s.must(map[string]any{"type": "unsubscribe", "id": "u", "sessionId": session})
	s.next("unsubscribed")
}

func TestClear_InMidReply_ReplyCancelled(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	answered := p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	c.say("Half of")
	cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
	s := p.viewerInReply(session, cursor)
	if cleared := p.must("DELETE", messages(session), nil); cleared["cleared"] != 2.0 {
		t.Errorf("cleared %v", cleared)
	}
	within(t, "the end of the model's request", c.closed)
	s.next("session.cleared")
	if a := within(t, "the response", answered); a.status != 200 || a.body["status"] != "cancelled" || a.body["content"] != "Half of" {
		t.Errorf("got %d %s", a.status, a.raw)
	}
	if got := p.must("GET", "/v1/sessions/"+session, nil); got["messageCount"] != 0.0 || got["tokenUsage"].(map[string]any)["total"] == 0.0 {
		t.Errorf("the session is %v", got)
	}
	begun := p.begin(session, "next") // the clear does not end the subscription
	model.next(t).end()
	s.next("message.created")
	if f := s.next("message.created"); f.Message.MessageID != begun["messageId"] {
		t.Errorf("created %+v", f)
	}
	s.next("message.delta")
	s.next("message.completed")
	if f, err := p.dial().subscribe(session, cursor); err != nil || f.Recovered == nil || *f.Recovered {
		t.Errorf("a cursor from before the clear got %+v, %v, want recovered: false", f, err)
	}
}

func TestSessionExpiry_InMidReply_ReplyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		session := p.session()
		const before = 10 * time.Second
		time.Sleep(24*time.Hour - before)
		answered := p.later("POST", messages(session), content("hello"))
		c := model.next(t)
		c.say("Half of")
		s := p.viewerInReply(session, p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string))
		began := time.Now()
		s.next("session.expired")
		if took := time.Since(began); took != before {
			t.Errorf("the session expired after %v, want %v", took, before)
		}
		<-c.closed
		checkError(t, <-answered, 404, "session_not_found", "")
		checkError(t, p.call("GET", "/v1/sessions/"+session, nil), 404, "session_not_found", "")
		_ = s.conn.CloseNow()
	})
}

func TestDrain_LiveReply_GoesOnUntilDeadline(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	session := p.session()
	answered := p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	c.say("A reply")
	waiting := p.later("POST", messages(session), content("waiting"))
	within(t, "the send to be queued", queued)
	p.handler.BeginDrain()
	drained := make(chan struct{})
	ctx, now := context.WithCancel(context.Background())
	go func() { defer close(drained); p.drain(ctx) }()
	checkError(t, within(t, "the response to the queued send", waiting), 503, "service_unavailable", "", "retryAfter")
	checkError(t, p.call("POST", messages(session), content("x")), 503, "service_unavailable", "", "retryAfter")
	if a := p.call("GET", "/v1/sessions/"+session, nil); a.status != http.StatusOK {
		t.Errorf("reading while draining: %s", a.raw)
	}
	c.say(" goes on.")
	now()
	a := within(t, "the response", answered)
	if a.status != 200 || a.body["status"] != "interrupted" || a.body["content"] != "A reply goes on." {
		t.Errorf("%d %s", a.status, a.raw)
	}
	within(t, "the end of the drain", drained)
}
