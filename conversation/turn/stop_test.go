package turn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
)

func TestCancel_LiveReply_WaitsForModel(t *testing.T) {
	model := conversationtest.NewDirected()
	model.Linger = make(chan struct{})
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	sent := n.Begun(session, "hello")
	c := model.Next(t)
	c.Write("Half of")
	cancelled := make(chan conversationtest.Reply, 1)
	go func() {
		m, err := n.Cancel(context.Background(), owner, session, sent.Reply.ID)
		cancelled <- conversationtest.Reply{Message: m, Err: err}
	}()
	<-c.Ctx.Done()
	if len(cancelled) > 0 {
		t.Error("the cancel was acknowledged while the model's request was open")
	}
	if m := n.All(session)[1]; m.Status != stream.Streaming {
		t.Errorf("the reply ended while the model's request was open: %+v", m)
	}
	close(model.Linger)
	wantReply(t, "the cancel", conversationtest.Within(t, "the cancel", cancelled), stream.Cancelled, "Half of")
	reply, err := sent.Wait(t.Context())
	wantReply(t, "the send", conversationtest.Reply{Message: reply, Err: err}, stream.Cancelled, "Half of")
	again, err := n.Cancel(t.Context(), owner, session, sent.Reply.ID)
	wantReply(t, "a second cancel", conversationtest.Reply{Message: again, Err: err}, stream.Cancelled, "Half of")
	asked, err := n.Cancel(t.Context(), owner, session, n.All(session)[0].ID)
	wantReply(t, "a cancel of a user's message", conversationtest.Reply{Message: asked, Err: err}, stream.Completed, "hello")
	_, err = n.Cancel(t.Context(), owner, session, "msg_0000000000000000")
	conversationtest.Fails(t, "a cancel of an unknown message", err, conversation.ErrMessageNotFound)
}

func TestCancel_ModelStaysOpen_ErrCancelPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		model.Linger = make(chan struct{})
		n := conversationtest.Start(t, model)
		session := n.NewSession()
		sent := n.Begun(session, "hello")
		model.Next(t)
		began := time.Now()
		_, err := n.Cancel(t.Context(), owner, session, sent.Reply.ID)
		if conversationtest.Fails(t, "the cancel", err, conversation.ErrCancelPending); time.Since(began) != 5*time.Second {
			t.Errorf("the cancel returned after %v", time.Since(began))
		}
		close(model.Linger)
		if m, err := n.Cancel(t.Context(), owner, session, sent.Reply.ID); err != nil || m.Status != stream.Cancelled {
			t.Errorf("after the model has stopped, Cancel returned %+v %v", m, err)
		}
	})
}

func TestCancel_TurnNotStarted_EndsCancelled(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	sent := (<-n.Begin(t.Context(), conversationtest.Message(session, "hello"))).Sent
	n.StopReply(session, sent.Reply.ID, stream.ErrCancelled)
	if m, err := sent.Wait(t.Context()); err != nil || m.Status != stream.Cancelled {
		t.Errorf("Wait returned %+v %v", m, err)
	}
}

func TestClear_MidReply_CancelsReply(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	v := n.Watch(session, nil)
	sent := n.Begun(session, "hello")
	c := model.Next(t)
	c.Write("Half of")
	before := n.Watch(session, nil).Position
	if count, err := n.Clear(t.Context(), owner, session); count != 2 || err != nil {
		t.Errorf("Clear returned %d %v", count, err)
	}
	conversationtest.Within(t, "the model's request to be closed", c.Closed)
	for event := v.Event(); event.Kind != stream.Cleared; event = v.Event() {
		if event.Kind == stream.Ended {
			t.Errorf("the reply's end was shown: %s", event.Ending.Message)
		}
	}
	reply, err := sent.Wait(t.Context())
	wantReply(t, "the send", conversationtest.Reply{Message: reply, Err: err}, stream.Cancelled, "Half of")
	if s := n.Get(session); s.MessageCount != 0 || s.TokenUsage.Total == 0 {
		t.Errorf("the session is %+v", s)
	}
	next := n.Begun(session, "next") // viewers stay subscribed
	model.Next(t).End()
	v.Event()
	if event := v.Event(); event.Entry.ID != next.Reply.ID {
		t.Errorf("the next turn created %+v", event)
	}
	v.Until(stream.Ended)
	if old := n.Watch(session, &before); old.Recovered {
		t.Error("the view from a position before the clear is marked as recovered")
	}
}

func TestClear_Busy30s_SessionBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		model.Linger = make(chan struct{})
		n := conversationtest.Start(t, model)
		session := n.NewSession()
		n.Begun(session, "hello")
		model.Next(t)
		began := time.Now()
		_, err := n.Clear(t.Context(), owner, session)
		if conversationtest.Fails(t, "the clear", err, conversation.ErrSessionBusy); time.Since(began) != 30*time.Second {
			t.Errorf("Clear returned after %v", time.Since(began))
		}
		close(model.Linger)
		if count, err := n.Clear(t.Context(), owner, session); err != nil || count != 2 {
			t.Errorf("after the model has stopped, Clear returned %d %v", count, err)
		}
		_, err = n.Clear(t.Context(), owner, "session_0000000000000000")
		conversationtest.Fails(t, "a clear of an unknown session", err, conversation.ErrSessionNotFound)
	})
}

func TestDelete_MidReply_StopsTurnAndWaiters(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session := n.NewSession()
	v := n.Watch(session, nil)
	replied := n.Later(conversationtest.Message(session, "hello"))
	c := model.Next(t)
	c.Write("Half of")
	waiting := n.Later(conversationtest.Message(session, "waiting"))
	conversationtest.Within(t, "a place in the queue", queue.queued)
	if err := n.DeleteSession(t.Context(), owner, session); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Closed:
	default:
		t.Error("the deletion did not wait for the model")
	}
	v.Until(stream.Deleted)
	if event, ok := v.Poll(); ok {
		t.Errorf("after the last event came %+v", event)
	}
	for name, replied := range map[string]<-chan conversationtest.Reply{"the send": replied, "the waiting send": waiting} {
		conversationtest.Fails(t, name, conversationtest.Within(t, name, replied).Err, conversation.ErrSessionNotFound)
	}
	conversationtest.Fails(t, "a second deletion", n.DeleteSession(t.Context(), owner, session), conversation.ErrSessionNotFound)
}

// faulty is a store. Its EndTurn fails while failing is set. Otherwise, it calls replacement if replacement is not nil.
type faulty struct {
	conversation.Store
	failing     atomic.Bool
	replacement func(conversation.Message) (conversation.Message, error)
}

func (a *faulty) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	if a.failing.Load() {
		return conversation.Message{}, errors.Join(conversation.ErrUnavailable, errors.New("secret"))
	}
	if a.replacement != nil {
		return a.replacement(reply)
	}
	return a.Store.EndTurn(ctx, key, reply, timing)
}

func TestEnding_NotStored_NotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model, store := conversationtest.NewDirected(), &faulty{}
		n := conversationtest.Start(t, model, func(o *service.Options) { store.Store, o.Store = o.Store, store })
		session := n.NewSession()
		v := n.Watch(session, nil)
		sent := n.Begun(session, "hello")
		replied := make(chan conversationtest.Reply, 1)
		go func() {
			m, err := sent.Wait(context.Background())
			replied <- conversationtest.Reply{Message: m, Err: err}
		}()
		c := model.Next(t)
		c.Write("A reply.")
		store.failing.Store(true)
		began := time.Now()
		c.End()
		if r := <-replied; !errors.Is(r.Err, conversation.ErrUnavailable) || time.Since(began) != 2*time.Second {
			t.Errorf("after %v the caller got %v", time.Since(began), r.Err)
		}
		if m := n.All(session)[1]; m.Status != stream.Streaming || m.Content != "A reply." {
			t.Errorf("while the store fails, the reply is %+v", m)
		}
		synctest.Wait()
		for event, ok := v.Poll(); ok; event, ok = v.Poll() {
			if event.Kind == stream.Ended {
				t.Errorf("the end of the reply was shown: %+v", event)
			}
		}
		time.Sleep(5 * time.Second)
		store.failing.Store(false)
		event, _ := v.Until(stream.Ended)
		if m := conversationtest.Decode(t, event.Ending.Message.AppendJSON(nil)); m.Content != "A reply." || m.Status != stream.Completed {
			t.Errorf("after the store works again, the reply ended as %+v", m)
		}
		synctest.Wait()
		for range 20 {
			if m, err := sent.Wait(t.Context()); err != nil || m.Content != "A reply." {
				t.Fatalf("after the ending is stored, Wait returned %+v, %v", m, err)
			}
		}
		if h := n.All(session); len(h) != 2 || h[1].Status != stream.Completed {
			t.Errorf("history has %+v", h)
		}
	})
}

// Two sends wait behind a reply when the reply ends, and a third send comes later. The store does not store the ending.
func TestEnding_NotStored_QueuedSendsFailWithin2s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model, store := conversationtest.NewDirected(), &faulty{}
		n := conversationtest.Start(t, model, func(o *service.Options) { store.Store, o.Store = o.Store, store })
		session := n.NewSession()
		n.Begun(session, "hello")
		first, second := n.Later(conversationtest.Message(session, "first")), n.Later(conversationtest.Message(session, "second"))
		synctest.Wait()
		store.failing.Store(true)
		model.Next(t).End()
		ended := time.Now()
		for name, reply := range map[string]<-chan conversationtest.Reply{"the first": first, "the second": second} {
			conversationtest.Fails(t, name, (<-reply).Err, conversation.ErrEndingNotStored)
		}
		if waited := time.Since(ended); waited > 2*time.Second {
			t.Errorf("the queued sends failed after %v, want 2 s at most", waited)
		}
		sent := time.Now()
		conversationtest.Fails(t, "the third", n.SendAndWait(t.Context(), conversationtest.Message(session, "third")).Err, conversation.ErrEndingNotStored)
		if waited := time.Since(sent); waited > 2*time.Second {
			t.Errorf("the third send failed after %v, want 2 s at most", waited)
		}
		store.failing.Store(false)
		go func() { model.Next(t).End() }()
		if r := n.SendAndWait(t.Context(), conversationtest.Message(session, "fourth")); r.Err != nil {
			t.Errorf("after the store works again, a send returned %v", r.Err)
		}
	})
}

func TestEnding_StoreWithLongTimeout_CallerWaitsAsLong(t *testing.T) {
	for timeout, wait := range map[time.Duration]time.Duration{time.Second: 2 * time.Second, 10 * time.Second: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			model, store, cluster := conversationtest.NewDirected(), &faulty{}, conversationtest.NewCluster(t)
			cluster.CallTimeout = timeout
			n := cluster.Start(model, func(o *service.Options) { store.Store, o.Store = o.Store, store })
			sent := n.Begun(n.NewSession(), "hello")
			store.failing.Store(true)
			began := time.Now()
			model.Next(t).End()
			if _, err := sent.Wait(t.Context()); !errors.Is(err, conversation.ErrUnavailable) || time.Since(began) != wait {
				t.Errorf("with a timeout of %v, the caller got %v after %v, want %v", timeout, err, time.Since(began), wait)
			}
			store.failing.Store(false)
		})
	}
}

// The subtests cover each decision that the store may take without this node.
func TestEnding_DecidedElsewhere_ShownAsStored(t *testing.T) {
	for name, test := range map[string]struct {
		replacement func(conversation.Message) (conversation.Message, error)
		err         error        // the error that the caller gets
		status      stream.State // the status that viewers see; "" if they see no end
	}{
		"ended by another node": {func(m conversation.Message) (conversation.Message, error) {
			m.Status = stream.Interrupted
			return m, conversation.ErrFenced
		}, nil, stream.Interrupted},
		"the reply is lost": {func(conversation.Message) (conversation.Message, error) {
			return conversation.Message{}, conversation.ErrFenced
		}, conversation.ErrReplyLost, stream.Interrupted},
		"the session is gone": {func(conversation.Message) (conversation.Message, error) {
			return conversation.Message{}, conversation.ErrSessionNotFound
		}, conversation.ErrSessionNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			model, store := conversationtest.NewDirected(), &faulty{replacement: test.replacement}
			n := conversationtest.Start(t, model, func(o *service.Options) { store.Store, o.Store = o.Store, store })
			session := n.NewSession()
			v := n.Watch(session, nil)
			sent := n.Begun(session, "hello")
			c := model.Next(t)
			c.Write("text")
			c.End()
			_, err := sent.Wait(t.Context())
			conversationtest.Fails(t, "the caller", err, test.err)
			if test.status == "" {
				return
			}
			event, text := v.Until(stream.Ended)
			m := conversationtest.Decode(t, event.Ending.Message.AppendJSON(nil))
			if m.Status != test.status || m.Content != "text" || text != "text" {
				t.Errorf("viewers see %+v after %q", m, text)
			}
			if lost := errors.Is(test.err, conversation.ErrReplyLost); lost != (*m.Usage == conversation.Usage{Estimated: true}) {
				t.Errorf("the reply's usage is %+v", m.Usage)
			}
		})
	}
}
