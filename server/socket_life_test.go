package server_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/conversation"
)

func TestSocket_ValidRequestsThatFail_StaysOpen(t *testing.T) {
	p := start(t, echo)
	s := p.dial()
	for range 30 {
		s.must(subscribe("1", noSession))
		s.next("error")
	}
}

func TestSocket_Drain_ClosedWhenNoReplyIsLive(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	idle, watching := p.dial(), p.dial()
	watching.mustSubscribe(session, "")
	watching.must(sending("1", session, "hello"))
	c := model.next(t)
	c.say("A reply")
	for _, kind := range []string{"sent", "message.created", "message.created", "message.delta"} {
		watching.next(kind)
	}
	p.handler.BeginDrain()
	done := make(chan struct{})
	go func() { defer close(done); p.handler.DrainSockets(context.Background()) }()
	if f := idle.next("draining"); f.ReconnectAfterMs <= 0 {
		t.Errorf("draining: %+v", f)
	}
	if code := idle.closed(); code != 1012 {
		t.Errorf("an idle socket was closed with %d", code)
	}
	watching.next("draining")
	c.say(" goes on.")
	if f := watching.next("message.delta"); f.Delta != " goes on." {
		t.Errorf("%+v", f)
	}
	c.end()
	watching.next("message.completed")
	if code := watching.closed(); code != 1012 {
		t.Errorf("closed with %d", code)
	}
	within(t, "the end of the drain", done)
}

// heap returns the number of bytes in use after garbage collection.
func heap() int64 {
	for range 3 { // after two collections, every sync.Pool is empty
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestSocket_Idle_OneGoroutineMemoryUnder14KiB(t *testing.T) {
	others := runtime.NumGoroutine() // goroutines of other tests, which wait to run in parallel
	p := start(t, echo)
	session := p.session()
	const sockets = 200
	warm := p.dialRaw()
	if _, _, err := warm.read(); err != nil {
		t.Fatal(err)
	}
	p.client.CloseIdleConnections()
	measure := func(most int) (goroutines int, bytes int64) {
		for deadline := time.Now().Add(testTimeout); runtime.NumGoroutine() > most && time.Now().Before(deadline); {
			runtime.Gosched()
		}
		h := heap()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), h + int64(m.StackInuse)
	}
	goroutines, bytes := measure(others + 10)
	for range sockets {
		s := p.dialRaw()
		if _, _, err := s.read(); err != nil { // the frame welcome
			t.Fatal(err)
		}
		if err := s.write(opText, fmt.Appendf(nil, `{"type":"subscribe","sessionId":"%s"}`, session)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.read(); err != nil {
			t.Fatal(err)
		}
		if err := s.write(opPing, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.read(); err != nil { // the pong
			t.Fatal(err)
		}
		s.in = nil // frees the client's buffer
	}
	g, b := measure(goroutines + sockets)
	t.Logf("an idle socket with a subscription: %.2f goroutines, %d bytes", float64(g-goroutines)/sockets, (b-bytes)/sockets)
	if g-goroutines > sockets {
		t.Errorf("%d idle sockets have %d goroutines", sockets, g-goroutines)
	}
	if (b-bytes)/sockets > memoryFactor*14<<10 {
		t.Errorf("an idle socket takes %d bytes", (b-bytes)/sockets)
	}
}

// lateGrant is a store. When a queued send gets the session, BeginTurn closes granted and waits for release. Then it begins the
// turn, even if the caller has disconnected.
type lateGrant struct {
	conversation.Store
	tries            atomic.Int32
	granted, release chan struct{}
}

func (s *lateGrant) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	if turn.Content == "queued" && s.tries.Add(1) == 2 {
		close(s.granted)
		<-s.release
		ctx = context.WithoutCancel(ctx)
	}
	return s.Store.BeginTurn(ctx, o, turn)
}

// In TestSocket_TurnBeginsAfterClose_TurnRuns, the turn of a queued send begins in the store after the socket has closed. The
// node must run the turn: otherwise the session would stay busy until the node drains.
func TestSocket_TurnBeginsAfterClose_TurnRuns(t *testing.T) {
	for _, name := range []string{"parley.v1", "ai-sdk.v7"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				model, store := newDirected(), &lateGrant{granted: make(chan struct{}), release: make(chan struct{})}
				p := startPiped(t, model, withStore(func(s conversation.Store) conversation.Store { store.Store = s; return store }))
				session := p.session()
				var conn *websocket.Conn
				var send func(text string)
				if name == "parley.v1" {
					s := p.dial()
					conn, send = s.conn, func(text string) { s.must(sending(text, session, text)) }
				} else {
					s := p.dialSDK(t, adminKey)
					conn, send = s.conn, func(text string) { s.must(sendFrame(text, session, chatMessage("user", text))) }
				}
				send("first")
				c := model.next(t)
				send("queued")
				synctest.Wait()
				c.end()
				<-store.granted
				_ = conn.CloseNow()
				synctest.Wait()
				close(store.release)
				c = model.next(t)
				c.say("A reply.")
				c.end()
				synctest.Wait()
				if h := p.history(session); len(h) != 4 || h[3].Content != "A reply." || h[3].Status != "completed" {
					t.Errorf("history has %+v", h)
				}
			})
		})
	}
}
