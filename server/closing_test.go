package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/conversation/service"
	"parley/server"
)

func TestASocketIsClosedForNonsense(t *testing.T) {
	p := start(t, echo)
	for name, test := range map[string]struct {
		do   func(s *rawSocket) error
		code int
	}{
		"1003_binary":         {func(s *rawSocket) error { return s.write(opBinary, []byte(`{"type":"ping"}`)) }, 1003},
		"1007_invalid_utf8":   {func(s *rawSocket) error { return s.write(opText, []byte("{\"type\":\"ping\",\"id\":\"\xff\"}")) }, 1007},
		"1007_half_character": {func(s *rawSocket) error { return s.write(opText, []byte("\xe6\x97")) }, 1007},
		"1009_over_1_MiB":     {func(s *rawSocket) error { return s.write(opText, bytes.Repeat([]byte(" "), 1<<20+1)) }, 1009},
		"1008_ten_invalid_frames": {func(s *rawSocket) (err error) {
			for range 10 {
				err = s.write(opText, []byte(`{}`))
			}
			return err
		}, 1008},
	} {
		t.Run(name, func(t *testing.T) {
			s := p.dialRaw()
			go func() { _ = test.do(s) }()
			if got := s.closed(); got != test.code {
				t.Errorf("closed with %d, want %d", got, test.code)
			}
		})
	}
	t.Run("open_after_nine_and_a_good_one", func(t *testing.T) {
		s := p.dial()
		for range 5 {
			for range 9 {
				if err := s.text("nonsense"); err != nil {
					t.Fatal(err)
				}
				s.next("error")
			}
			s.must(map[string]any{"type": "unsubscribe", "sessionId": "none"})
			s.next("unsubscribed")
		}
	})
	t.Run("open_after_valid_requests_that_fail", func(t *testing.T) {
		s := p.dial()
		for range 30 {
			s.must(subscribe("1", noSession))
			s.next("error")
		}
	})
	t.Run("open_after_a_frame_of_1_MiB", func(t *testing.T) {
		s := p.dial()
		ping := `{"type":"ping","id":"1"}`
		if err := s.text(ping + strings.Repeat(" ", 1<<20-len(ping))); err != nil {
			t.Fatal(err)
		}
		s.next("pong")
	})
}

func TestTooManySocketsAre4429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo, func(o *server.Options, _ *service.Options) { o.MaxSockets = 2 })
		first, second := p.dial(), p.dial()
		silent := p.dialRaw() // refused, and does not answer the close: that must not keep anybody out
		began := time.Now()
		if op, payload, err := silent.read(); op != opClose || int(payload[0])<<8|int(payload[1]) != 4429 {
			t.Errorf("%d %q %v", op, payload, err)
		}
		if err := first.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		third := p.dial()
		if took := time.Since(began); took > time.Second {
			t.Errorf("there was room after %v", took)
		}
		for _, s := range []*socket{second, third} {
			_ = s.conn.CloseNow()
		}
	})
}

func TestADrainTellsSocketsAndClosesThemWhenNothingIsLive(t *testing.T) {
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

func TestADrainDoesNotWaitLongForASilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		for range 3 {
			silent := p.dialRaw()
			go func() { _, _ = io.Copy(io.Discard, silent.conn) }() // reads, but does not answer a close
		}
		p.handler.BeginDrain()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		p.handler.DrainSockets(ctx)
		if took := time.Since(began); took > 2200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestADrainWaitsForADeafClientNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		deaf := p.dialRaw()
		defer deaf.conn.Close() // does not even read
		p.handler.BeginDrain()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		p.handler.DrainSockets(ctx)
		if took := time.Since(began); took > 5200*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestASocketThatAnswersNoPingIs4408(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		s := p.dialRaw()
		began := time.Now()
		pings := 0
		for {
			op, payload, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			if op == opPing {
				pings++
				if at := time.Since(began); at != time.Duration(pings)*25*time.Second {
					t.Errorf("ping %d came after %v", pings, at)
				}
			}
			if op == opClose {
				if code := int(payload[0])<<8 | int(payload[1]); code != 4408 || pings != 2 {
					t.Errorf("closed with %d after %d pings", code, pings)
				}
				break
			}
		}
		if took := time.Since(began); took != 75*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

func TestASocketThatAnswersPingsStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		session := p.session()
		s := p.dial()
		s.mustSubscribe(session, "")
		frames := make(chan frame, 10)
		go func() {
			for {
				ctx, cancel := context.WithTimeout(context.Background(), 48*time.Hour)
				_, body, err := s.conn.Read(ctx)
				cancel()
				if err != nil {
					return
				}
				frames <- frame{raw: string(body)}
			}
		}()
		time.Sleep(23 * time.Hour)
		s.must(map[string]any{"type": "ping", "id": "p"})
		if f := <-frames; f.raw != `{"type":"pong","replyTo":"p"}` {
			t.Errorf("after 23 hours: %s", f.raw)
		}
		_ = s.conn.CloseNow()
		synctest.Wait()
	})
}

func TestAWriteWithoutProgressDropsTheSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		session := p.session()
		s := p.dialRaw()
		if op, _, err := s.read(); op != opText || err != nil {
			t.Fatal(op, err)
		}
		if err := s.write(opText, fmt.Appendf(nil, `{"type":"subscribe","sessionId":"%s"}`, session)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Second + time.Millisecond)
		if err := s.write(opText, []byte(`{"type":"ping"}`)); err == nil {
			t.Error("the connection still stands")
		}
	})
}

func TestAClientThatNeverReadsAndPingsForEver(t *testing.T) {
	p := start(t, echo)
	s := p.dialRaw()
	before := heap()
	ping := fmt.Appendf(nil, `{"type":"ping","id":"%s"}`, strings.Repeat("x", 100))
	ended := make(chan int)
	go func() {
		sent := 0
		for _ = s.conn.SetWriteDeadline(time.Now().Add(time.Second)); s.write(opText, ping) == nil; sent++ {
			_ = s.conn.SetWriteDeadline(time.Now().Add(time.Second)) // without progress: the server reads no more
		}
		ended <- sent
	}()
	sent := within(t, "the server to stop reading", ended)
	grown := heap() - before
	t.Logf("%d pings of %d bytes were taken; the heap has grown by %d KiB", sent, len(ping), grown>>10)
	if grown > leniency*256<<10 {
		t.Errorf("it has grown by %d bytes", grown)
	}
}

// heap is how much memory is in use once all garbage is collected.
func heap() int64 {
	for range 3 { // pools need two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAnIdleSocketCostsOneGoroutineAndLittleMemory(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	const sockets = 200
	warm := p.dialRaw()
	if _, _, err := warm.read(); err != nil {
		t.Fatal(err)
	}
	p.client.CloseIdleConnections()
	measure := func(most int) (goroutines int, bytes int64) {
		for deadline := time.Now().Add(patience); runtime.NumGoroutine() > most && time.Now().Before(deadline); {
			runtime.Gosched()
		}
		h := heap()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), h + int64(m.StackInuse)
	}
	goroutines, bytes := measure(10)
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
	t.Logf("an idle socket that watches a session: %.2f goroutines, %d bytes", float64(g-goroutines)/sockets, (b-bytes)/sockets)
	if g-goroutines > sockets {
		t.Errorf("%d idle sockets have %d goroutines", sockets, g-goroutines)
	}
	if (b-bytes)/sockets > leniency*20<<10 {
		t.Errorf("an idle socket takes %d bytes", (b-bytes)/sockets)
	}
}
