package turn_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/store/embedded"
	"parley/stream"
)

// drainTimeout is the timeout that the tests give to a drain.
const drainTimeout = 5 * time.Second

// drain drains a node with drainTimeout and returns how long the drain took.
func drain(n *conversationtest.Node) time.Duration {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	n.Drain(ctx)
	return time.Since(began)
}

// The store refuses all endings. The drain must give up about 2 s after its timeout.
func TestDrain_StoreRefusesWrites_EndsAndLeavesOrphan(t *testing.T) {
	for name, ends := range map[string]bool{"reply ends before the drain": true, "live reply": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "parley.db")
			var session string
			synctest.Test(t, func(t *testing.T) {
				disk, err := embedded.Open(path, embedded.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = disk.Close() }()
				model, store := conversationtest.NewDirected(), &faulty{Store: disk}
				n := conversationtest.Start(t, model, func(o *service.Options) { o.Store = store })
				session = n.NewSession()
				viewer := n.Watch(session, nil)
				replied := n.Later(conversationtest.Message(session, "hello"))
				c := model.Next(t)
				c.Write("A reply.")
				time.Sleep(time.Second) // the journal stores the text
				store.failing.Store(true)
				if ends {
					c.End()
					synctest.Wait()
				}
				if took := drain(n); took < drainTimeout || took > drainTimeout+3*time.Second {
					t.Errorf("the drain took %v, want its timeout of %v and at most 3 s more", took, drainTimeout)
				}
				if r := <-replied; !errors.Is(r.Err, conversation.ErrEndingNotStored) {
					t.Errorf("the caller got %+v", r)
				}
				for event, ok := viewer.Poll(); ok; event, ok = viewer.Poll() {
					if event.Kind == stream.Ended {
						t.Errorf("a viewer saw an end that is not stored: %+v", event)
					}
				}
				if n.LiveReplies() != 0 || n.InFlight() != 0 {
					t.Errorf("after the drain, %d replies are live and %d sends in flight", n.LiveReplies(), n.InFlight())
				}
			})
			synctest.Test(t, func(t *testing.T) { // the next start
				disk, err := embedded.Open(path, embedded.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = disk.Close() }()
				n := conversationtest.Start(t, conversationtest.NewDirected(), func(o *service.Options) { o.Store = disk })
				if h := n.All(session); len(h) != 2 || h[1].Status != stream.Interrupted || h[1].Content != "A reply." {
					t.Errorf("after the next start, the history is %+v", h)
				}
				drain(n)
			})
		})
	}
}

// The model needs longer to stop than a drain waits for a store. The store works, so it still gets the ending.
func TestDrain_ModelStopsLate_EndingStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.ModelFunc(func(ctx context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
			write([]byte("A reply."))
			<-ctx.Done()
			time.Sleep(time.Minute)
			return stream.Result{}, ctx.Err()
		})
		n := conversationtest.Start(t, model)
		session := n.NewSession()
		n.Begun(session, "hello")
		drain(n)
		if h := n.All(session); len(h) != 2 || h[1].Status != stream.Interrupted || h[1].Content != "A reply." {
			t.Errorf("after the drain, the history is %+v", h)
		}
	})
}

// The store of one node fails. After the drain of that node, another node ends the reply.
func TestDrain_StoreOfOneNodeFails_OtherNodeEndsReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model, store, cluster := conversationtest.NewDirected(), &faulty{}, conversationtest.NewCluster(t)
		a := cluster.Start(model, func(o *service.Options) { store.Store, o.Store = o.Store, store })
		b := cluster.Start(model)
		session := a.NewSession()
		a.Begun(session, "hello")
		model.Next(t).Write("A reply.")
		time.Sleep(time.Second)
		store.failing.Store(true)
		if took := drain(a); took > drainTimeout+3*time.Second {
			t.Errorf("the drain took %v", took)
		}
		viewer := b.Watch(session, nil)
		cluster.Orphan(session)
		if event, _ := viewer.Until(stream.Ended); event.Ending.State != stream.Interrupted {
			t.Errorf("the reply ended as %+v", event.Ending)
		}
	})
}
