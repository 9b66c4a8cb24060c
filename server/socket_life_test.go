package server_test

import (
	"context"
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

// inUse returns the number of goroutines, and the bytes of the heap and of all stacks. It first waits, for at most 10 s, until at
// most the number most of goroutines is left.
func inUse(most int) (goroutines int, bytes int64) {
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > most && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	h := heap()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), h + int64(m.StackInuse)
}

// request writes a text frame and reads a number of frames.
func (s *rawSocket) request(frame string, frames int) {
	s.t.Helper()
	if err := s.write(opText, []byte(frame)); err != nil {
		s.t.Fatal(err)
	}
	s.skip(frames)
}

// skip reads a number of frames.
func (s *rawSocket) skip(frames int) {
	s.t.Helper()
	for range frames {
		if _, _, err := s.read(); err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestSocket_Idle_OneGoroutineMemoryUnder14KiB(t *testing.T) {
	others := runtime.NumGoroutine() // goroutines of other tests, which wait to run in parallel
	p := start(t, echo)
	session := p.session()
	const sockets = 200
	p.dialRaw().skip(1)
	p.client.CloseIdleConnections()
	goroutines, bytes := inUse(others + 10)
	for range sockets {
		s := p.dialRaw()
		s.skip(1) // welcome
		s.request(`{"type":"subscribe","sessionId":"`+session+`"}`, 1)
		if err := s.write(opPing, nil); err != nil {
			t.Fatal(err)
		}
		s.skip(1)  // the pong
		s.in = nil // frees the client's buffer
	}
	g, b := inUse(goroutines + sockets)
	t.Logf("an idle socket with a subscription: %.2f goroutines, %d bytes", float64(g-goroutines)/sockets, (b-bytes)/sockets)
	if g-goroutines > sockets {
		t.Errorf("%d idle sockets have %d goroutines", sockets, g-goroutines)
	}
	if (b-bytes)/sockets > memoryFactor*14<<10 {
		t.Errorf("an idle socket takes %d bytes", (b-bytes)/sockets)
	}
}

// The model is a function in this process. TestGenerate_WaitingForToken_MemoryUnder32KiB in stream/openai counts the request to a
// real model.
func TestSocket_LiveReply_TwoGoroutinesMemoryUnder36KiB(t *testing.T) {
	others := runtime.NumGoroutine()
	model := newDirected()
	p := start(t, model)
	const sockets = 100
	sessions := make([]string, sockets)
	for i := range sessions {
		sessions[i] = p.session()
	}
	p.dialRaw().skip(1)
	p.client.CloseIdleConnections()
	goroutines, bytes := inUse(others + 10)
	for _, session := range sessions {
		s := p.dialRaw()
		s.skip(1)
		s.request(`{"type":"subscribe","sessionId":"`+session+`"}`, 1)
		s.request(`{"type":"send","sessionId":"`+session+`","content":"hello"}`, 3) // sent, and two times message.created
		model.next(t).say("token")
		s.skip(1)
		s.in = nil
	}
	const most = 2*sockets + 1 // the journal has a goroutine
	g, b := inUse(goroutines + most)
	t.Logf("a live reply with its socket: %.2f goroutines, %d bytes", float64(g-goroutines)/sockets, (b-bytes)/sockets)
	if g-goroutines > most {
		t.Errorf("%d live replies have %d goroutines", sockets, g-goroutines)
	}
	if (b-bytes)/sockets > memoryFactor*36<<10 { // 22 to 25 KB on the embedded store, 30 KB on Redis
		t.Errorf("a live reply takes %d bytes", (b-bytes)/sockets)
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
