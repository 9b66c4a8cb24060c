package server_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
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
	within(t, "the drain", done)
}

// heap returns the number of bytes in use after garbage collection.
func heap() int64 {
	for range 3 { // a sync.Pool is empty after two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestSocket_Idle_LittleMemory(t *testing.T) {
	others := runtime.NumGoroutine() // waiting parallel tests have one goroutine each
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
		if _, _, err := s.read(); err != nil { // the welcome
			t.Fatal(err)
		}
		if err := s.write(opText, fmt.Appendf(nil, `{"type":"subscribe","sessionId":"%s"}`, session)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.read(); err != nil {
			t.Fatal(err)
		}
		s.in = nil // the client's buffer
	}
	g, b := measure(goroutines + sockets)
	t.Logf("an idle socket with a subscription: %.2f goroutines, %d bytes", float64(g-goroutines)/sockets, (b-bytes)/sockets)
	if g-goroutines > sockets {
		t.Errorf("%d idle sockets have %d goroutines", sockets, g-goroutines)
	}
	if (b-bytes)/sockets > memoryFactor*20<<10 {
		t.Errorf("an idle socket takes %d bytes", (b-bytes)/sockets)
	}
}
