package socket

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

func TestClose_EachCause_SendsItsCode(t *testing.T) {
	for name, test := range map[string]struct {
		send func(s *rawSocket) error
		code int
	}{
		"1003 binary":         {func(s *rawSocket) error { return s.write(opBinary, []byte(`{"type":"ping"}`)) }, 1003},
		"1007 invalid UTF-8":  {func(s *rawSocket) error { return s.write(opText, []byte("{\"type\":\"ping\",\"id\":\"\xff\"}")) }, 1007},
		"1007 half character": {func(s *rawSocket) error { return s.write(opText, []byte("\xe6\x97")) }, 1007},
		"1009 over 1 MiB":     {func(s *rawSocket) error { return s.write(opText, bytes.Repeat([]byte(" "), 1<<20+1)) }, 1009},
		"1008 ten invalid frames": {func(s *rawSocket) (err error) {
			for range 10 {
				err = s.write(opText, []byte(`{}`))
			}
			return err
		}, 1008},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHost(t, nil).dialRaw()
				go func() { _ = test.send(s) }()
				if got := s.closed(); got != test.code {
					t.Errorf("closed with %d, want %d", got, test.code)
				}
			})
		})
	}
}

func TestConnection_ValidFrameBetweenInvalidOnes_StaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		s.next()
		frames := append([]string{strings.Repeat(" ", 1<<20-15) + `{"type":"ping"}`}, strings.Split(strings.Repeat("nonsense\n", 9)+`{"type":"ping"}`, "\n")...)
		for range 3 {
			for _, frame := range frames {
				go func() { _ = s.write(opText, []byte(frame)) }()
				s.next()
			}
		}
	})
}

func TestMaxSockets_OneTooMany_ClosedWith4429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, func(o *Options) { o.MaxSockets = 2 })
		first := h.dial()
		h.dial()
		silent := h.dialRaw() // refused; it does not answer the close frame, but must not count as open
		if code := silent.closed(); code != 4429 {
			t.Errorf("closed with %d, want 4429", code)
		}
		if err := first.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		h.dial()
	})
}

func TestDrain_SilentClient_EndsAfterCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		for range 3 {
			silent := h.dialRaw()
			go func() { _, _ = io.Copy(io.Discard, silent.conn) }() // reads, but does not answer the close frame
		}
		h.BeginDrain()
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		h.Drain(ctx)
		if took := time.Since(began); took > closeTimeout+2*drainInterval {
			t.Errorf("the drain took %v of synctest time", took)
		}
	})
}

func TestDrain_ClientNeverReads_EndsAfterContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		h.dialRaw()
		h.BeginDrain()
		began := time.Now()
		const budget = 3 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), budget)
		defer cancel()
		h.Drain(ctx)
		if took := time.Since(began); took > budget+closeTimeout+2*drainInterval {
			t.Errorf("the drain took %v of synctest time", took)
		}
	})
}

func TestDrain_LiveSession_WaitsForContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e *emptyConversation
		h := newHost(t, func(o *Options) { e = o.Conversation.(*emptyConversation); e.live = true })
		s := h.dial()
		if err := s.Write(t.Context(), websocket.MessageText, []byte(`{"type":"subscribe","sessionId":"`+aSession+`"}`)); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				if _, _, err := s.Read(t.Context()); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		h.BeginDrain()
		began := time.Now()
		const budget = 3 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), budget)
		defer cancel()
		h.Drain(ctx)
		if took := time.Since(began); took < budget || h.Open() != 0 {
			t.Errorf("the drain took %v of synctest time; %d sockets are open", took, h.Open())
		}
	})
}

func TestHeartbeat_NoPongs_ClosedWith4408(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		began := time.Now()
		pings := 0
		for {
			op, payload, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			if op == opPing {
				pings++
				if at := time.Since(began); at != time.Duration(pings)*pingInterval {
					t.Errorf("ping %d came after %v, want %v", pings, at, time.Duration(pings)*pingInterval)
				}
			}
			if op == opClose {
				if code := int(payload[0])<<8 | int(payload[1]); code != 4408 || pings != 2 {
					t.Errorf("closed with %d after %d pings, want 4408 after 2", code, pings)
				}
				break
			}
		}
		if took := time.Since(began); took != 3*pingInterval {
			t.Errorf("closed after %v, want %v", took, 3*pingInterval)
		}
	})
}

func TestHeartbeat_Pongs_StaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dial()
		frames := make(chan string)
		go func() {
			defer close(frames)
			for {
				_, body, err := s.Read(context.Background())
				if err != nil {
					return
				}
				frames <- string(body)
			}
		}()
		time.Sleep(23 * time.Hour)
		if err := s.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping","id":"p"}`)); err != nil {
			t.Fatal(err)
		}
		if f := <-frames; f != `{"type":"pong","replyTo":"p"}` {
			t.Errorf("after 23 hours, the response to a ping is %s", f)
		}
		_ = s.CloseNow()
		<-frames
	})
}

// TestMessage_Unfinished_ClosedWith4408: the client sends the first fragment of a message, and never the last one. It answers
// every ping, so the heartbeat does not close the socket.
func TestMessage_Unfinished_ClosedWith4408(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		s.next()
		began := time.Now()
		go func() {
			frame := []byte{opText, 0x80 | 127, 0, 0, 0, 0, 0, 0xf, 0xff, 0xff, 0, 0, 0, 0} // not the last fragment
			_, _ = s.conn.Write(append(frame, make([]byte, 0xfffff)...))
		}()
		for {
			op, payload, err := s.read()
			switch {
			case err != nil:
				t.Fatal(err)
			case op == opPing && time.Since(began) < 10*messageTimeout:
				if err := s.write(opPong, payload); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if code := int(payload[0])<<8 | int(payload[1]); op != opClose || code != 4408 {
				t.Errorf("got opcode %d with %d, want a close frame with 4408", op, code)
			}
			break
		}
		if took := time.Since(began); took != messageTimeout {
			t.Errorf("closed after %v, want %v", took, messageTimeout)
		}
	})
}

// A message in several fragments may take almost messageTimeout, and the next one too.
func TestMessage_SlowFragments_Answered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		s.next()
		go func() {
			for range 3 {
				_, _ = s.conn.Write([]byte{opText, 0x80, 0, 0, 0, 0}) // an empty fragment, not the last one
				time.Sleep(messageTimeout - time.Second)
				_ = s.write(0, []byte(`{"type":"ping","id":"p"}`))
			}
		}()
		for pongs := 0; pongs < 3; {
			op, payload, err := s.read()
			switch {
			case err != nil:
				t.Fatal(err)
			case op == opPing:
				_ = s.write(opPong, payload)
			case op == opText && string(payload) == `{"type":"pong","replyTo":"p"}`:
				pongs++
			default:
				t.Fatalf("opcode %d, %q", op, payload)
			}
		}
	})
}

// TestOutbox_ClientNeverReads_ReaderStops: the client sends requests and reads no responses. The server must stop reading.
func TestOutbox_ClientNeverReads_ReaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		sent := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for s.write(opText, []byte(`{"type":"ping","id":"x"}`)) == nil {
				sent++
			}
		}()
		synctest.Wait() // the network has no buffers, so the client blocks as soon as the server stops reading
		// The writer holds one batch of responses, and the next batch waits in the outbox.
		if sent < maxOutbox || sent > 2*maxOutbox {
			t.Errorf("the server read %d requests, want at most %d", sent, 2*maxOutbox)
		}
		_ = s.conn.Close()
		<-done
	})
}
