package follow_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
)

var owner = conversationtest.Owner

// twoNodes runs a test in a synctest bubble with two nodes of a cluster, which use one model.
func twoNodes(t *testing.T, test func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed), options ...conversationtest.Option) {
	synctest.Test(t, func(t *testing.T) {
		cluster, model := conversationtest.NewCluster(t), conversationtest.NewDirected()
		test(t, cluster, cluster.Start(model, options...), cluster.Start(model, options...), model)
	})
}

func TestFollow_OtherNodesReply_ShownWhole(t *testing.T) {
	twoNodes(t, func(t *testing.T, _ *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		session := a.NewSession()
		v := b.Watch(session, nil)
		a.Begun(session, "hello")
		c := model.Next(t)
		want := ""
		for i := range 10 {
			part := fmt.Sprintf("part %d äöü ", i)
			c.Write(part)
			want += part
			time.Sleep(70 * time.Millisecond)
		}
		began := time.Now()
		c.End()
		event, text := v.Until(stream.Ended)
		m := conversationtest.Decode(t, event.Ending.Message.AppendJSON(nil))
		if text != want || m.Content != want || m.Status != stream.Completed || time.Since(began) != 0 {
			t.Errorf("%v after the end: viewers saw %q, the reply has %q", time.Since(began), text, m.Content)
		}
	})
}

func TestFollow_WakeUpsLost_PollsShowAll(t *testing.T) {
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		cluster.LoseWakeUps()
		session := a.NewSession()
		v := b.Watch(session, nil)
		a.Begun(session, "hello")
		c := model.Next(t)
		c.Write("first")
		began := time.Now()
		event, _ := v.Until(stream.Delta)
		if took := time.Since(began); string(event.Delta) != "first" || took > 6*time.Second {
			t.Errorf("in an idle session, the viewer was shown %q after %v", event.Delta, took)
		}
		c.Write("second")
		began = time.Now()
		event, _ = v.Until(stream.Delta)
		if took := time.Since(began); string(event.Delta) != "second" || took > 2*time.Second {
			t.Errorf("with a live reply, the viewer was shown %q after %v", event.Delta, took)
		}
		c.End()
		v.Until(stream.Ended)
	})
}

func TestFollow_PollFails_Retried(t *testing.T) {
	var log strings.Builder
	handler := slog.NewTextHandler(&log, nil) // one for both nodes: its lock guards the builder
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		for _, operation := range []string{"Poll", "Messages"} {
			session := a.NewSession()
			v := b.Watch(session, nil)
			cluster.Fail(operation, errors.New("planted"))
			a.Begun(session, "hello")
			c := model.Next(t)
			c.Write("text")
			time.Sleep(3 * time.Second)
			if operation == "Poll" { // if Messages fails, the viewer's own reads fail too
				if event, ok := v.Poll(); ok {
					t.Errorf("a viewer is shown %+v", event)
				}
			}
			cluster.Fail(operation, nil)
			began := time.Now()
			v.Until(stream.Delta)
			if took := time.Since(began); took > 500*time.Millisecond {
				t.Errorf("%s: the text came after %v", operation, took)
			}
			cluster.Fail("Message", errors.New("planted")) // after the poll, the node reads the ended reply by Message
			c.End()
			time.Sleep(time.Second)
			cluster.Fail("Message", nil)
			v.Until(stream.Ended)
		}
	}, func(o *service.Options) { o.Log = slog.New(handler) })
	if lines := strings.Count(log.String(), "cannot be followed"); lines == 0 || lines > 8 {
		t.Errorf("the log has %d lines: %s", lines, log.String())
	}
}

// TestFollow_OneSessionCannotBePolled_OthersFollowed simulates a Redis Cluster in which the master of one account is down.
func TestFollow_OneSessionCannotBePolled_OthersFollowed(t *testing.T) {
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		sessions := []string{a.NewSession(), a.NewSession()}
		var viewers []*conversationtest.Viewer
		var calls []*conversationtest.Call
		for _, session := range sessions {
			viewers = append(viewers, b.Watch(session, nil))
			a.Begun(session, "hello")
			calls = append(calls, model.Next(t))
		}
		cluster.Fail("Poll "+sessions[0], errors.New("planted"))
		for _, c := range calls {
			c.Write("text")
			c.End()
		}
		viewers[1].Until(stream.Ended)
		if event, ok := viewers[0].Poll(); ok && event.Kind == stream.Ended {
			t.Errorf("the viewer of the session that cannot be polled is shown %+v", event)
		}
		cluster.Fail("Poll "+sessions[0], nil)
		viewers[0].Until(stream.Ended)
	})
}

func TestFollow_StoreReconnects_AllSessionsPolled(t *testing.T) {
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		cluster.LoseWakeUps()
		session := a.NewSession()
		v := b.Watch(session, nil)
		time.Sleep(time.Millisecond) // until Run has handled the tick that is due now
		a.Begun(session, "hello")
		c := model.Next(t)
		c.Write("text")
		time.Sleep(100 * time.Millisecond)
		cluster.Reconnect()
		synctest.Wait()
		if event, ok := v.Poll(); !ok || event.Kind != stream.Created {
			t.Errorf("after a reconnect the viewer is shown %+v", event)
		}
		c.End()
	})
}

// The node learns of 12 exchanges in one poll, more than it shows from memory.
func TestFollow_FarBehind_ReadsHistory(t *testing.T) {
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		cluster.LoseWakeUps()
		session := a.NewSession()
		v := b.Watch(session, nil)
		for i := range 12 {
			replied := a.Later(conversationtest.Message(session, fmt.Sprint("message ", i)))
			c := model.Next(t)
			c.Write(fmt.Sprint("reply ", i))
			c.End()
			<-replied
		}
		for i := range 12 {
			if m := conversationtest.Decode(t, v.Event().Entry.Created); m.Content != fmt.Sprint("message ", i) {
				t.Fatalf("message %d is %q", i, m.Content)
			}
			if _, text := v.Until(stream.Ended); text != fmt.Sprint("reply ", i) {
				t.Fatalf("reply %d is %q", i, text)
			}
		}
	})
}

func TestFollow_BothNodesWrite_ViewersSeeAll(t *testing.T) {
	twoNodes(t, func(t *testing.T, _ *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		session := a.NewSession()
		viewers := []*conversationtest.Viewer{a.Watch(session, nil), b.Watch(session, nil)}
		for i := range 6 {
			n := []*conversationtest.Node{a, b}[i%2]
			replied := n.Later(conversationtest.Message(session, fmt.Sprint("message ", i)))
			c := model.Next(t)
			c.Write(fmt.Sprint("reply ", i))
			c.End()
			<-replied
		}
		for at, v := range viewers {
			for i := range 6 {
				if m := conversationtest.Decode(t, v.Event().Entry.Created); m.Content != fmt.Sprint("message ", i) {
					t.Fatalf("node %d: message %d is %q", at, i, m.Content)
				}
				v.Event() // the reply
				if _, text := v.Until(stream.Ended); text != fmt.Sprint("reply ", i) {
					t.Fatalf("node %d: reply %d is %q", at, i, text)
				}
			}
			if event, ok := v.Poll(); ok {
				t.Errorf("node %d: after the last reply came %+v", at, event)
			}
		}
	})
}

func TestFollow_ClearedOrGone_BothNodesShow(t *testing.T) {
	twoNodes(t, func(t *testing.T, _ *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		for name, test := range map[string]struct {
			end  func(session string)
			want stream.EventKind
		}{
			"cleared": {func(session string) { _, _ = b.Clear(context.Background(), owner, session) }, stream.Cleared},
			"deleted": {func(session string) { _ = b.DeleteSession(context.Background(), owner, session) }, stream.Deleted},
			"expired": {func(string) { time.Sleep(conversation.Lifetime) }, stream.Expired},
		} {
			session := a.NewSession()
			if name == "expired" {
				// The reply begins shortly before the expiry, so that the model's timeout does not come first.
				time.Sleep(conversation.Lifetime - 10*time.Second)
			}
			here, there := a.Watch(session, nil), b.Watch(session, nil)
			a.Begun(session, "hello")
			c := model.Next(t)
			c.Write("Half of")
			there.Until(stream.Delta)
			if name == "expired" {
				time.Sleep(11 * time.Second)
			} else {
				test.end(session)
			}
			<-c.Closed
			for _, v := range []*conversationtest.Viewer{here, there} {
				for event := v.Event(); event.Kind != test.want; event = v.Event() {
					if event.Kind == stream.Ended {
						t.Errorf("%s: a viewer saw the end of the reply %s", name, event.Ending.Message)
					}
				}
			}
		}
	})
}

// A fail-over of the store loses a reply after viewers have seen part of its text.
func TestFollow_ReplyLost_ShownAsInterrupted(t *testing.T) {
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		session := a.NewSession()
		v := b.Watch(session, nil)
		a.Begun(session, "hello")
		c := model.Next(t)
		c.Write("Half of")
		v.Until(stream.Delta)
		cluster.Fail("Message", conversation.ErrMessageNotFound)
		c.End()
		event, _ := v.Until(stream.Ended)
		if m := conversationtest.Decode(t, event.Ending.Message.AppendJSON(nil)); m.Status != stream.Interrupted || m.Content != "Half of" || *m.Usage != (conversation.Usage{Estimated: true}) {
			t.Errorf("the reply ended as %+v", m)
		}
	})
}

func TestFollow_LastViewerCloses_TopicClosed(t *testing.T) {
	twoNodes(t, func(t *testing.T, _ *conversationtest.Cluster, a, b *conversationtest.Node, model *conversationtest.Directed) {
		session := a.NewSession()
		viewer, _, _, err := b.View(t.Context(), owner, session, nil, func() {})
		if err != nil || b.Topics() != 1 {
			t.Fatalf("%d topics are open, error %v", b.Topics(), err)
		}
		viewer.Close()
		time.Sleep(2 * time.Second)
		if b.Topics() != 0 {
			t.Errorf("%d topics are open", b.Topics())
		}
	})
}

func TestView_AnyPosition_BeginsThereOrErrNoPosition(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	if v := n.Watch(session, nil); v.Position != (stream.Position{}) || !v.Recovered {
		t.Errorf("the view of an empty session begins at %+v", v.Position)
	}
	sent := n.Begun(session, "hello")
	c := model.Next(t)
	c.Write("Half of")
	live := n.Watch(session, nil)
	if live.Position != (stream.Position{ID: sent.Reply.ID, Offset: 7}) {
		t.Errorf("during a reply the view begins at %+v", live.Position)
	}
	c.Write(" it")
	if event := live.Event(); event.Offset != 7 || string(event.Delta) != " it" {
		t.Errorf("the viewer is shown %+v", event)
	}
	check := func(name string, p stream.Position, want error) {
		t.Helper()
		conversationtest.Fails(t, name, n.CheckPosition(t.Context(), owner, session, p), want)
	}
	message := sent.Position.ID
	check("the live reply", stream.Position{ID: sent.Reply.ID, Offset: 1000}, nil)
	check("ahead of all", stream.After("msg_zzzzzzzzzzzzzzzz"), conversation.ErrNoPosition)
	c.End()
	if _, err := sent.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("after a message", stream.After(message), nil)
	check("the text's end", stream.Position{ID: sent.Reply.ID, Offset: 10}, nil)
	check("behind the text", stream.Position{ID: sent.Reply.ID, Offset: 11}, conversation.ErrNoPosition)
	check("between messages", stream.Position{ID: message[:len(message)-1], Offset: 1}, nil)
	conversationtest.Fails(t, "an unknown session", n.CheckPosition(t.Context(), owner, "session_0000000000000000", stream.Position{}), conversation.ErrSessionNotFound)
	if _, _, _, err := n.View(t.Context(), owner, "session_0000000000000000", nil, func() {}); !errors.Is(err, conversation.ErrSessionNotFound) {
		t.Errorf("a view of an unknown session: %v", err)
	}
	whole := n.Watch(session, &stream.Position{})
	whole.Event()
	if _, text := whole.Until(stream.Ended); text != "Half of it" {
		t.Errorf("from the beginning, the viewer was shown %q", text)
	}
	if v := n.Watch(session, nil); v.Position != stream.After(sent.Reply.ID) {
		t.Errorf("after the reply the view begins at %+v", v.Position)
	}
}

func TestView_StoreUnavailable_ErrUnavailable(t *testing.T) {
	twoNodes(t, func(t *testing.T, cluster *conversationtest.Cluster, a, b *conversationtest.Node, _ *conversationtest.Directed) {
		session := a.NewSession()
		cluster.Fail("Follow", conversation.ErrUnavailable)
		_, _, _, err := b.View(t.Context(), owner, session, nil, func() {})
		conversationtest.Fails(t, "a view", err, conversation.ErrUnavailable)
	})
}
