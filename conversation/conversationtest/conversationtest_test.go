package conversationtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNode_ThreeMessages_ViewerSeesReplies(t *testing.T) {
	var model conversationtest.Summarising
	n := conversationtest.Start(t, &model, func(o *service.Options) { o.Embedder = nil })
	session := n.NewSession(conversation.ContextConfig{MaxTokens: 400, CompressionEnabled: true, RetentionPolicy: conversation.FIFO})
	v := n.Watch(session, nil)
	for range 3 {
		m := n.Ask(session, conversationtest.OfTokens(40, "hello"))
		event, text := v.Until(stream.Ended)
		if got := conversationtest.Decode(t, event.Ending.Message.AppendJSON(nil)); got.ID != m.ID || got.Content != text || m.Tokens != 46 {
			t.Errorf("the viewer saw %+v after %q, want %+v", got, text, m)
		}
	}
	if len(n.All(session)) != 6 || n.Get(session).MessageCount != 6 {
		t.Errorf("the history has %d messages, want 6", len(n.All(session)))
	}
	if replies, _ := model.Called(); len(replies) != 3 {
		t.Errorf("the model was called for %d replies, want 3", len(replies))
	}
	n.Drain(t.Context())
	conversationtest.Fails(t, "a send", (<-n.Later(conversationtest.Message(session, "x"))).Err, conversation.ErrDraining)
}

func TestCluster_Operations_KeepContractOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		n := cluster.Start(model)
		nodes, owner, ctx := n.Nodes, conversationtest.Owner, t.Context()
		session := n.NewSession()
		if s, err := nodes.Follow(ctx, owner, session); err != nil || s.ID != session {
			t.Errorf("Follow returned %+v %v", s, err)
		}
		sent := n.Begun(session, "hello")
		c := model.Next(t)
		c.Write("Half of")
		synctest.Wait()
		if m, err := nodes.StopReply(ctx, owner, session, sent.Position.ID); err != nil || m.Content != "hello" {
			t.Errorf("StopReply of a user's message returned %+v %v", m, err)
		}
		updates, err := nodes.Poll(ctx, []conversation.Followed{
			{Owner: owner, SessionID: session, Reply: sent.Reply.ID, Offset: 1}, {Owner: owner, SessionID: "session_0000000000000000"},
		})
		if err != nil || updates[0].Session.LiveReply != sent.Reply.ID || updates[0].Stop != "" || !updates[1].Gone {
			t.Errorf("Poll returned %+v %v", updates, err)
		}
		_, err = nodes.ResumeTurn(ctx, owner, conversation.NewTurn{SessionID: session, Waiter: "nobody"})
		conversationtest.Fails(t, "a turn whose response was not lost", err, conversation.ErrMessageNotFound)
		for _, operation := range []string{"Poll", "Follow", "ResumeTurn", "Message", "Messages", "EndOrphans"} {
			planted := errors.New("planted")
			cluster.Fail(operation, planted)
			var err error
			switch operation {
			case "Poll":
				_, err = nodes.Poll(ctx, nil)
			case "Follow":
				_, err = nodes.Follow(ctx, owner, session)
			case "ResumeTurn":
				_, err = nodes.ResumeTurn(ctx, owner, conversation.NewTurn{})
			case "Message":
				_, err = n.Store.Message(ctx, owner, session, sent.Reply.ID)
			case "Messages":
				_, err = n.Store.Messages(ctx, owner, session, conversation.MessageQuery{Limit: 1})
			case "EndOrphans":
				_, err = n.Store.EndOrphans(ctx, conversationtest.Count)
			}
			conversationtest.Fails(t, operation, err, planted)
			cluster.Fail(operation, nil)
		}
		cluster.Orphan(session)
		if ended, err := n.Store.EndOrphans(ctx, conversationtest.Count); ended != 1 || err != nil {
			t.Errorf("EndOrphans returned %d %v", ended, err)
		}
		<-c.Closed
		if m, err := sent.Wait(ctx); err != nil || m.Status != stream.Interrupted {
			t.Errorf("the reply of the orphan is %+v %v", m, err)
		}
		cluster.Fail("BeginTurn", conversation.ErrUnavailable)
		conversationtest.Fails(t, "a lost response", n.SendAndWait(ctx, conversationtest.Message(session, "x")).Err, conversation.ErrUnavailable)
		model.Next(t).End() // the node has resumed the turn
		cluster.Fail("BeginTurn", nil)
		replied := n.Later(conversationtest.Message(session, "interrupted"))
		model.Next(t)
		m := conversationtest.Message(session, "now")
		m.OnBusy = conversation.Interrupt
		second := n.Later(m)
		if r := <-replied; r.Status != stream.Cancelled {
			t.Errorf("the interrupted reply is %+v", r)
		}
		model.Next(t)
		if _, err := n.Clear(ctx, owner, session); err != nil {
			t.Error(err)
		}
		if r := <-second; r.Status != stream.Cancelled {
			t.Errorf("the cleared reply is %+v", r)
		}
		cluster.LoseWakeUps()
		cluster.Reconnect()
		if err := n.DeleteSession(context.Background(), owner, session); err != nil {
			t.Error(err)
		}
	})
}

func TestModels_EachModel_BehavesAsDirected(t *testing.T) {
	n := conversationtest.Start(t, conversationtest.Echo)
	if m := n.Ask(n.NewSession(), "hi"); m.Content != "You said: hi" || conversationtest.Echo.Name() != "scripted" {
		t.Errorf("the reply of Echo is %+v", m)
	}
	directed := conversationtest.NewDirected()
	directed.Linger = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-directed.Calls
		cancel()
		close(directed.Linger)
	}()
	if _, err := directed.Generate(ctx, stream.Request{}, nil); !errors.Is(err, context.Canceled) || directed.Name() != "directed" {
		t.Errorf("the cancelled call of a directed model returned %v", err)
	}
	var m conversationtest.Summarising
	m.Summarise(func(context.Context, int) (string, error) { return "text", errors.New("planted") })
	if _, err := m.Generate(t.Context(), stream.Request{Summary: true}, func([]byte) {}); err == nil || m.Name() != "summarising" {
		t.Errorf("the call for a failing summary returned %v", err)
	}
	if _, err := m.Generate(ctx, stream.Request{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the call with a cancelled context returned %v", err)
	}
	if _, summaries := m.Called(); len(summaries) != 1 {
		t.Errorf("%d summaries", len(summaries))
	}
}
