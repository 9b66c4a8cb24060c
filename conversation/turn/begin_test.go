package turn_test

import (
	"context"
	"testing"
	"testing/synctest"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
)

// staged is a store that calls begin instead of BeginTurn.
type staged struct {
	conversation.Store
	begin func(ctx context.Context, store conversation.Store, m conversation.NewTurn) (conversation.TurnStart, error)
}

func (s *staged) BeginTurn(ctx context.Context, o conversation.Owner, m conversation.NewTurn) (conversation.TurnStart, error) {
	return s.begin(ctx, s.Store, m)
}

// startStaged runs a node whose store may report a turn before its commit.
func startStaged(t *testing.T, model stream.Model) (*conversationtest.Node, *staged) {
	s := &staged{}
	n := conversationtest.Start(t, model, conversationtest.Early, func(o *service.Options) { s.Store, o.Store = o.Store, s })
	return n, s
}

// slowCommit makes BeginTurn return only when release is closed. The store reports the turn before.
func (s *staged) slowCommit(release <-chan struct{}) {
	s.begin = func(ctx context.Context, store conversation.Store, m conversation.NewTurn) (conversation.TurnStart, error) {
		begun, err := store.BeginTurn(ctx, owner, m)
		<-release
		return begun, err
	}
}

// wantNothing checks that a viewer has no event.
func wantNothing(t *testing.T, v *conversationtest.Viewer) {
	t.Helper()
	if event, ok := v.Poll(); ok {
		t.Errorf("a viewer was shown %+v", event)
	}
}

func TestEarly_SlowCommit_ModelWritesNothingShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n, store := startStaged(t, model)
		session := n.NewSession()
		v := n.Watch(session, nil)
		release := make(chan struct{})
		store.slowCommit(release)
		replied := n.Later(conversationtest.Message(session, "hello"))
		c := model.Next(t)
		c.Write("Hi.")
		c.End()
		<-c.Closed
		synctest.Wait()
		wantNothing(t, v)
		if n.LiveReplies() != 0 || len(replied) != 0 {
			t.Errorf("before the commit there are %d live replies and %d results", n.LiveReplies(), len(replied))
		}
		if m := n.All(session)[1]; m.Content != "" || m.Status != stream.Streaming {
			t.Errorf("before the commit the store has the reply %+v", m)
		}
		close(release)
		wantReply(t, "the reply", conversationtest.Within(t, "the reply", replied), stream.Completed, "Hi.")
		if _, text := v.Until(stream.Ended); text != "Hi." {
			t.Errorf("the viewer was shown %q", text)
		}
		if len(model.Calls) != 0 {
			t.Error("the model was called twice")
		}
	})
}

// wantClosed checks that a request to the model is closed.
func wantClosed(t *testing.T, c *conversationtest.Call) {
	t.Helper()
	select {
	case <-c.Closed:
	default:
		t.Error("the request to the model is still open")
	}
}

// preparedIn returns a turn that a store could report for m, the first message of a session.
func preparedIn(n *conversationtest.Node, m conversation.NewTurn) conversation.TurnStart {
	s := n.Get(m.SessionID)
	s.MessageCount, s.HistoryTokens, s.Fence = 2, 10, s.Fence+1
	reply := conversation.Message{ID: conversation.NewID(conversation.MessagePrefix, s.LastActivity, ""), Role: conversation.Assistant, Status: stream.Streaming}
	return conversation.TurnStart{
		Key:     conversation.TurnKey{Owner: owner, SessionID: s.ID, ReplyID: reply.ID, Fence: s.Fence},
		Session: s, Message: conversation.Message{Role: m.Role, Content: m.Content, Tokens: m.Tokens}, Reply: reply,
	}
}

func TestEarly_CommitFails_RequestClosedNothingShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n, store := startStaged(t, model)
		session := n.NewSession()
		v := n.Watch(session, nil)
		fail := make(chan struct{})
		store.begin = func(_ context.Context, _ conversation.Store, m conversation.NewTurn) (conversation.TurnStart, error) {
			m.Prepared(preparedIn(n, m))
			<-fail
			return conversation.TurnStart{}, conversation.ErrStoreFailed
		}
		replied := n.Later(conversationtest.Message(session, "hello"))
		c := model.Next(t)
		c.Write("Hi.")
		close(fail)
		conversationtest.Fails(t, "the send", conversationtest.Within(t, "the send", replied).Err, conversation.ErrStoreFailed)
		synctest.Wait() // no time passes, so the model's timeouts do not close the request
		wantClosed(t, c)
		wantNothing(t, v)
		if n.InFlight() != 0 || n.LiveReplies() != 0 || n.IsLive(session) || len(n.All(session)) != 0 {
			t.Errorf("after the failure there are %d sends in flight, %d live replies and %d messages", n.InFlight(), n.LiveReplies(), len(n.All(session)))
		}
		store.begin = func(ctx context.Context, store conversation.Store, m conversation.NewTurn) (conversation.TurnStart, error) {
			return store.BeginTurn(ctx, owner, m)
		}
		again := n.Later(conversationtest.Message(session, "hello again"))
		model.Next(t).End()
		wantReply(t, "the second send", conversationtest.Within(t, "the second send", again), stream.Completed, conversationtest.Done)
		if len(model.Calls) != 0 {
			t.Error("the model was called a third time")
		}
	})
}

// The store runs the operation again after a failed commit, and begins another turn than it has reported.
func TestEarly_OtherTurnBegins_FirstRequestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n, store := startStaged(t, model)
		session := n.NewSession()
		commit := make(chan struct{})
		store.begin = func(ctx context.Context, store conversation.Store, m conversation.NewTurn) (conversation.TurnStart, error) {
			m.Prepared(preparedIn(n, m))
			<-commit
			m.Prepared = nil
			return store.BeginTurn(ctx, owner, m)
		}
		replied := n.Later(conversationtest.Message(session, "hello"))
		first := model.Next(t)
		first.Write("first")
		close(commit)
		second := model.Next(t)
		synctest.Wait()
		wantClosed(t, first)
		second.Write("second")
		second.End()
		wantReply(t, "the reply", conversationtest.Within(t, "the reply", replied), stream.Completed, "second")
	})
}

// The session has more messages than the window, so the store must have begun the turn before messages are left out.
func TestEarly_WindowFull_ModelCalledAfterCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n, store := startStaged(t, model)
		session := n.NewSession(conversation.ContextConfig{MaxTokens: 64, CompressionEnabled: true, RetentionPolicy: conversation.FIFO})
		release := make(chan struct{})
		close(release)
		store.slowCommit(release)
		for range 3 {
			replied := n.Later(conversationtest.Message(session, conversationtest.OfTokens(10, "hello")))
			c := model.Next(t)
			c.Write(conversationtest.OfTokens(10, "hi"))
			c.End()
			conversationtest.Within(t, "a reply", replied)
		}
		v := n.Watch(session, nil)
		release = make(chan struct{})
		store.slowCommit(release)
		replied := n.Later(conversationtest.Message(session, "now?"))
		synctest.Wait()
		wantNothing(t, v)
		if len(model.Calls) != 0 {
			t.Error("the model was called before the commit")
		}
		close(release)
		model.Next(t).End()
		wantReply(t, "the reply", conversationtest.Within(t, "the reply", replied), stream.Completed, conversationtest.Done)
	})
}
