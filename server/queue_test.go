package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
	"parley/conversation"
)

func TestSend_BusySession_FollowsOnBusy(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	session := p.session()
	first := p.later("POST", messages(session), content("first"))
	c := model.next(t)
	c.say("Half of")
	t.Run("409_reject", func(t *testing.T) {
		refusals{"session_unchanged": {"POST", messages(session), content("x", "onBusy", "reject"), nil, 409, "session_busy", ""}}.run(t, p, session)
	})
	t.Run("200_interrupt_precedes_queued_sends", func(t *testing.T) {
		waiting := p.later("POST", messages(session), content("waiting"))
		within(t, "the send to be queued", queued)
		interrupting := p.later("POST", messages(session), content("interrupting", "onBusy", "interrupt"))
		a := within(t, "the interrupted response", first)
		if m := decodeInto[message](t, a); a.status != 200 || m.Status != "cancelled" || m.Content != "Half of" {
			t.Errorf("the first send got %d %s", a.status, a.raw)
		}
		c := model.next(t)
		if last := c.request.Messages[len(c.request.Messages)-1]; last.Content != "interrupting" || len(c.request.Messages) != 3 {
			t.Errorf("then the model got %+v", c.request.Messages)
		}
		c.end()
		if a := within(t, "the interrupting response", interrupting); a.status != 200 {
			t.Errorf("%d %s", a.status, a.raw)
		}
		model.next(t).end()
		if a := within(t, "the response to the queued send", waiting); a.status != 200 {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
	t.Run("200_idle_session_accepts_any_onBusy", func(t *testing.T) {
		for _, how := range []string{"reject", "interrupt", "enqueue"} {
			a := p.later("POST", messages(session), content("x", "onBusy", how))
			model.next(t).end()
			if a := within(t, "a response", a); a.status != 200 {
				t.Errorf("%s: %d %s", how, a.status, a.raw)
			}
		}
	})
}

// leaveNotifier is a store that signals when a waiter has left a queue.
type leaveNotifier struct {
	conversation.Store
	left chan struct{}
}

func (s *leaveNotifier) LeaveQueue(ctx context.Context, owner conversation.Owner, session, waiter string) error {
	err := s.Store.LeaveQueue(ctx, owner, session, waiter)
	s.left <- struct{}{}
	return err
}

func notifyLeft() (option, <-chan struct{}) {
	left := make(chan struct{}, 1000)
	return withStore(func(s conversation.Store) conversation.Store { return &leaveNotifier{s, left} }), left
}

func TestQueuedSend_CallerLeaves_SendWithdrawn(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	noticed, givenUp := notifyLeft()
	p := start(t, model, option, noticed)
	session := p.session()
	p.begin(session, "first")
	c := model.next(t)
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := p.do(ctx, "POST", messages(session), content("left"))
		left <- err
	}()
	within(t, "the send to be queued", queued)
	third := p.later("POST", messages(session), content("third"))
	within(t, "the send to be queued", queued)
	leave()
	if err := within(t, "the caller to leave", left); err == nil {
		t.Error("the caller that left got a response")
	}
	within(t, "the abandoned send to leave the queue", givenUp)
	c.end()
	c = model.next(t)
	if last := c.request.Messages[len(c.request.Messages)-1]; last.Content != "third" {
		t.Fatalf("the model got %q", last.Content)
	}
	c.end()
	if a := within(t, "the third response", third); a.status != 200 || len(p.history(session)) != 4 {
		t.Errorf("%d %s", a.status, a.raw)
	}
}

func TestSend_CallerLeaves_ReplyGoesOn(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := p.do(ctx, "POST", messages(session), content("hello"))
		left <- err
	}()
	c := model.next(t)
	c.say("Half of ")
	leave()
	within(t, "the caller to leave", left)
	p.client.CloseIdleConnections()
	c.say("a reply.")
	if c.ctx.Err() != nil {
		t.Fatal("the model's request ended with the caller")
	}
	s := p.dial()
	reply := p.history(session)[1]
	s.mustSubscribe(session, p.must("GET", messages(session)+"/"+reply.MessageID, nil)["stream"].(map[string]any)["cursor"].(string))
	c.end()
	if f := s.next("message.completed"); f.Message.Content != "Half of a reply." {
		t.Errorf("the reply ended as %+v", f.Message)
	}
}

func TestQueuedSend_KeyRevoked_401(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	session := p.session()
	key, secret := p.newKey("default", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.WriteMessages}})
	first := p.later("POST", messages(session), content("first"))
	c := model.next(t)
	waiting := p.later("POST", messages(session), content("waiting"), "Authorization", "Bearer "+secret)
	within(t, "the send to be queued", queued)
	if a := p.call("DELETE", "/v1/keys/"+key.ID, nil); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	c.end()
	within(t, "the first response", first)
	if a := within(t, "the response to the queued send", waiting); a.status != 401 || code(a.body) != "invalid_token" {
		t.Errorf("%d %s", a.status, a.raw)
	}
	next := p.later("POST", messages(session), content("next"))
	c = model.next(t)
	if last := c.request.Messages[len(c.request.Messages)-1]; last.Content != "next" {
		t.Errorf("then the model got %+v", last)
	}
	c.end()
	within(t, "the next response", next)
}

// TestSend_KeyRevoked_401WithinASecond revokes a key that has two sends in the queue of a session, and a send that waits for its
// reply. All three get 401. The queued sends leave the queue, and the reply goes on.
func TestSend_KeyRevoked_401WithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		option, queued := notifyQueued()
		noticed, left := notifyLeft()
		p := startPiped(t, model, option, noticed)
		busy, session := p.session(), p.session()
		key, secret := p.newKey("default", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.WriteMessages}})
		p.begin(busy, "first")
		first := model.next(t)
		sends := map[string]<-chan answer{
			"queued":            p.later("POST", messages(busy), content("queued"), with(secret)...),
			"queued, streaming": p.later("POST", messages(busy), map[string]any{"content": "queued", "streaming": true}, with(secret)...),
			"answered":          p.later("POST", messages(session), content("waits"), with(secret)...),
		}
		within(t, "the first send to be queued", queued)
		within(t, "the second send to be queued", queued)
		second := model.next(t)
		if err := p.keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		for what, send := range sends {
			if a := within(t, "the response to the send that is "+what, send); a.status != 401 || code(a.body) != "invalid_token" || time.Since(from) > time.Second {
				t.Fatalf("%s: %d %s after %v", what, a.status, a.raw, time.Since(from))
			}
		}
		within(t, "the first send to leave the queue", left)
		within(t, "the second send to leave the queue", left)
		for _, c := range []*call{first, second} {
			if c.ctx.Err() != nil {
				t.Error("a reply was stopped")
			}
			c.say("to the end")
			c.end()
		}
		p.awaitNoLiveReply()
		if last := p.history(session)[1]; last.Status != "completed" || len(p.history(busy)) != 2 {
			t.Errorf("the reply ended as %+v", last)
		}
	})
}
