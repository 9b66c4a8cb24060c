package turn_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/stream"
)

// keyed returns a message with an Idempotency-Key.
func keyed(session, text, key string) conversation.NewMessage {
	m := conversationtest.Message(session, text)
	m.Idempotency = &conversation.Idempotency{Key: key, Digest: [32]byte{byte(len(text))}}
	return m
}

func TestReplay_TenAtOnce_OneReply(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	var replies []<-chan conversationtest.Reply
	for range 10 {
		replies = append(replies, n.Later(keyed(session, "hello", "k")))
	}
	c := model.Next(t)
	c.Write("once")
	c.End()
	fresh := 0
	for _, replied := range replies {
		r := conversationtest.Within(t, "a reply", replied)
		wantReply(t, "a reply", r, stream.Completed, "once")
		if !r.Replayed {
			fresh++
		}
	}
	if fresh != 1 || len(model.Calls) > 0 || n.Get(session).MessageCount != 2 {
		t.Errorf("%d replies are not replays, %d messages", fresh, n.Get(session).MessageCount)
	}
}

func TestReplay_LiveOrEnded_SameReply(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	first, err := n.Send(t.Context(), keyed(session, "hello", "k"))
	if err != nil {
		t.Fatal(err)
	}
	c := model.Next(t)
	again := func(when string) {
		t.Helper()
		m := keyed(session, "hello", "k")
		m.OnBusy = conversation.Reject
		sent, err := n.Send(t.Context(), m)
		if err != nil || !sent.Replayed || sent.Reply.ID != first.Reply.ID || sent.Reply.Status != stream.Streaming || sent.Reply.Content != "" || sent.Position != first.Position {
			t.Fatalf("%s: the repeat returned %+v %v, want %+v", when, sent, err, first)
		}
		if when == "over" {
			m, err := sent.Wait(t.Context())
			wantReply(t, when, conversationtest.Reply{Message: m, Err: err}, stream.Completed, "text")
		}
	}
	again("live")
	c.Write("text")
	c.End()
	if _, err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	again("over")
	conversationtest.Fails(t, "another request", n.SendAndWait(t.Context(), keyed(session, "hello!", "k")).Err, conversation.ErrIdempotencyConflict)
}

func TestReplay_OtherNodesReply_Joined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		session := a.NewSession()
		first := a.Later(keyed(session, "hello", "k"))
		c := model.Next(t)
		repeat := b.Later(keyed(session, "hello", "k"))
		c.Write("once")
		synctest.Wait()
		if len(repeat) > 0 {
			t.Fatalf("the repeat did not wait: %+v", <-repeat)
		}
		c.End()
		wantReply(t, "the first", <-first, stream.Completed, "once")
		r := <-repeat
		wantReply(t, "the repeat", r, stream.Completed, "once")
		if !r.Replayed {
			t.Error("the repeat is not marked as a replay")
		}
	})
}

func TestReplay_OtherNodesReplyGone_ErrReplyLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		session := a.NewSession()
		a.Later(keyed(session, "hello", "k"))
		c := model.Next(t)
		repeat := b.Later(keyed(session, "hello", "k"))
		time.Sleep(time.Second)
		cluster.Fail("Message", conversation.ErrMessageNotFound)
		c.End()
		conversationtest.Fails(t, "the repeat", (<-repeat).Err, conversation.ErrReplyLost)
	})
}

func TestSend_LostResponse_RepeatJoinsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		session := a.NewSession()
		cluster.Fail("BeginTurn", conversation.ErrUnavailable)
		cluster.Fail("ResumeTurn", conversation.ErrUnavailable)
		conversationtest.Fails(t, "the send", a.SendAndWait(t.Context(), keyed(session, "hello", "k")).Err, conversation.ErrUnavailable)
		cluster.Fail("BeginTurn", nil)
		repeat := b.Later(keyed(session, "hello", "k"))
		time.Sleep(3 * time.Second)
		if len(model.Calls) > 0 {
			t.Fatal("the node runs the turn before the store has confirmed that it began")
		}
		cluster.Fail("ResumeTurn", nil)
		c := model.Next(t)
		c.Write("once")
		c.End()
		wantReply(t, "the repeat", <-repeat, stream.Completed, "once")
		if s := b.Get(session); s.MessageCount != 2 {
			t.Errorf("the session has %d messages", s.MessageCount)
		}
	})
}

func TestSend_ResponseLostWhileQueued_TurnNeverBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		n := cluster.Start(model)
		session := n.NewSession()
		n.Begun(session, "first")
		c := model.Next(t)
		cluster.Fail("BeginTurn", conversation.ErrUnavailable) // the node never learns its place in the queue
		conversationtest.Fails(t, "the send", n.SendAndWait(t.Context(), conversationtest.Message(session, "x")).Err, conversation.ErrUnavailable)
		cluster.Fail("BeginTurn", nil)
		c.End()
		synctest.Wait()
		if len(model.Calls) > 0 {
			t.Error("the model was called for the lost send")
		}
	})
}

func TestResume_Drain_GivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := conversationtest.NewCluster(t)
		n := cluster.Start(conversationtest.Echo)
		session := n.NewSession()
		cluster.Fail("BeginTurn", conversation.ErrUnavailable)
		cluster.Fail("ResumeTurn", conversation.ErrUnavailable)
		conversationtest.Fails(t, "the send", n.SendAndWait(t.Context(), conversationtest.Message(session, "x")).Err, conversation.ErrUnavailable)
		began := time.Now()
		if n.Drain(t.Context()); time.Since(began) > time.Second {
			t.Errorf("the drain took %v", time.Since(began))
		}
	})
}

func TestCancel_OtherNodesReply_WaitsForModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		session := a.NewSession()
		sent := a.Begun(session, "hello")
		c := model.Next(t)
		c.Write("Half of")
		m, err := b.Cancel(t.Context(), owner, session, sent.Reply.ID)
		wantReply(t, "the cancel", conversationtest.Reply{Message: m, Err: err}, stream.Cancelled, "Half of")
		select {
		case <-c.Closed:
		default:
			t.Error("the cancel was acknowledged before the model's request was closed")
		}

		model.Linger = make(chan struct{})
		sent = a.Begun(session, "again")
		model.Next(t)
		began := time.Now()
		_, err = b.Cancel(t.Context(), owner, session, sent.Reply.ID)
		if conversationtest.Fails(t, "a cancel of a model that lingers", err, conversation.ErrCancelPending); time.Since(began) != 5*time.Second {
			t.Errorf("the cancel returned after %v", time.Since(began))
		}
		close(model.Linger)
	})
}

func TestInterruptAndClear_OtherNodesReply_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		session := a.NewSession()
		first := a.Later(conversationtest.Message(session, "hello"))
		model.Next(t).Write("Half of")
		m := conversationtest.Message(session, "now")
		m.OnBusy = conversation.Interrupt
		second := b.Later(m)
		c := model.Next(t)
		wantReply(t, "the interrupted", <-first, stream.Cancelled, "Half of")
		if conversationtest.Last(c.Request) != "now" {
			t.Errorf("the next call of the model is %+v", c.Request)
		}
		c.Write("Here")
		if count, err := a.Clear(t.Context(), owner, session); count != 4 || err != nil {
			t.Errorf("Clear returned %d %v", count, err)
		}
		wantReply(t, "the cleared", <-second, stream.Cancelled, "Here")
	})
}

func TestOrphans_SearchFails_EndedByRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		a, b := cluster.Start(model), cluster.Start(model)
		session := a.NewSession()
		replied := a.Later(conversationtest.Message(session, "hello"))
		c := model.Next(t)
		c.Write("Half of")
		time.Sleep(time.Second) // journalled
		v := b.Watch(session, &stream.Position{})
		cluster.Fail("EndOrphans", errors.New("planted"))
		cluster.Orphan(session) // as if node a had sent no heartbeat
		time.Sleep(2 * time.Second)
		cluster.Fail("EndOrphans", nil)
		event, text := v.Until(stream.Ended)
		if m := conversationtest.Decode(t, event.Ending.Message.AppendJSON(nil)); m.Status != stream.Interrupted || m.Content != "Half of" || text != "Half of" {
			t.Errorf("viewers see %+v after %q", m, text)
		}
		<-c.Closed // node a is alive after all, so it stops its turn
		wantReply(t, "its caller", <-replied, stream.Interrupted, "Half of")
	})
}

// Two sends with the same key are in the queue at the same time.
func TestReplay_BothQueued_OneReply(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session := n.NewSession()
	n.Begun(session, "first")
	c := model.Next(t)
	var replies []<-chan conversationtest.Reply
	for range 2 {
		replies = append(replies, n.Later(keyed(session, "hello", "k")))
		conversationtest.Within(t, "a place in the queue", queue.queued)
	}
	other := n.Later(conversationtest.Message(session, "other"))
	conversationtest.Within(t, "a place in the queue", queue.queued)
	c.End()
	c = model.Next(t)
	c.Write("once")
	c.End()
	replayed := 0
	for _, from := range replies {
		r := conversationtest.Within(t, "a reply", from)
		wantReply(t, "a reply", r, stream.Completed, "once")
		if r.Replayed {
			replayed++
		}
	}
	model.Next(t).End()
	wantReply(t, "the other", conversationtest.Within(t, "the other reply", other), stream.Completed, conversationtest.Done)
	if s := n.Get(session); replayed != 1 || s.MessageCount != 6 {
		t.Errorf("%d replies are replayed, of %d messages", replayed, s.MessageCount)
	}
}
