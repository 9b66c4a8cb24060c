package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// smallBufferListener is a listener. While on is set, new connections get small send buffers in the kernel.
type smallBufferListener struct {
	net.Listener
	on atomic.Bool
}

func (l *smallBufferListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.on.Load() {
		err = conn.(*net.TCPConn).SetWriteBuffer(32 << 10)
	}
	return conn, err
}

// scratch is a pool of buffers for frames. Without the pool, a thousand viewers in this process would need a thousand buffers.
var scratch = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// follow reads a reply's deltas from offset on and compares the deltas with text. It stops at the offset end or, if whole is set,
// after the terminal frame. It returns the offset at which it has stopped.
func (s *rawSocket) follow(text []byte, offset, end int, whole bool) (int, error) {
	for offset < end || whole {
		op, n, err := s.header()
		if err != nil {
			return offset, fmt.Errorf("at %d: %w", offset, err)
		}
		if op == opClose {
			return offset, fmt.Errorf("at %d: closed by the server", offset)
		}
		if !s.complete { // the terminal frame, which holds the whole text; the server writes it in parts
			err := s.discard(n)
			if err == nil && offset != len(text) {
				err = fmt.Errorf("the terminal frame came after %d of %d bytes", offset, len(text))
			}
			return offset, err
		}
		buffer := scratch.Get().(*[]byte)
		frame := (*buffer)[:n]
		if _, err = io.ReadFull(s.in, frame); err == nil && bytes.HasPrefix(frame, []byte(`{"type":"message.delta"`)) {
			offset, err = takeDelta(frame, text, offset)
		}
		scratch.Put(buffer)
		if err != nil {
			return offset, err
		}
	}
	return offset, nil
}

// discard reads the rest of a message. The next n bytes are its current part.
func (s *rawSocket) discard(n int) error {
	for {
		if _, err := io.CopyN(io.Discard, s.in, int64(n)); err != nil || s.complete {
			return err
		}
		var err error
		if _, n, err = s.header(); err != nil {
			return err
		}
	}
}

// takeDelta compares a delta with text, and returns the offset of the delta's end. The delta must not contain escapes.
func takeDelta(frame, text []byte, offset int) (int, error) {
	_, rest, _ := bytes.Cut(frame, []byte(`"offset":`))
	number, rest, _ := bytes.Cut(rest, []byte(`,"delta":"`))
	delta, _, _ := bytes.Cut(rest, []byte(`"`))
	at, err := strconv.Atoi(string(number))
	if err != nil || at != offset || offset+len(delta) > len(text) || !bytes.Equal(delta, text[offset:offset+len(delta)]) {
		return offset, fmt.Errorf("want a delta at %d, got %.200s", offset, frame)
	}
	return offset + len(delta), nil
}

// crowd opens n sockets, subscribes them to a session, and reads up to the reply's message.created. buffer is the size of the
// kernel's receive buffer in bytes, or 0 for the default. A buffer smaller than a TCP segment of the loopback makes the kernel
// very slow.
func (p *parley) crowd(n, buffer int, session, cursor string) []*rawSocket {
	p.t.Helper()
	sockets := make([]*rawSocket, n)
	for i := range sockets {
		dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if buffer == 0 {
				return nil
			}
			return errors.Join(c.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer)
			}), err)
		}}
		conn, err := dialer.Dial("tcp", p.url[len("http://"):])
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = conn.Close() })
		s := p.handshake(conn)
		if err := s.write(opText, fmt.Appendf(nil, `{"type":"subscribe","sessionId":%q,"after":%q}`, session, cursor)); err != nil {
			p.t.Fatal(err)
		}
		for _, want := range []string{"welcome", "subscribed", "message.created"} {
			if _, frame, err := s.read(); err != nil || !bytes.Contains(frame, []byte(want)) {
				p.t.Fatalf("%d: %s, %v", i, frame, err)
			}
		}
		sockets[i] = s
	}
	return sockets
}

// all runs f for all sockets in parallel and returns the first error.
func all(sockets []*rawSocket, f func(s *rawSocket) error) error {
	failed := make(chan error, len(sockets))
	for _, s := range sockets {
		go func() { failed <- f(s) }()
	}
	var first error
	for range sockets {
		if err := <-failed; first == nil {
			first = err
		}
	}
	return first
}

// crowded is a live reply with viewers. The stuck viewers do not read.
type crowded struct {
	*parley
	text           []byte
	call           *call
	stuck, readers []*rawSocket
}

// newCrowded starts a reply with a text of size bytes, and opens sockets that view the reply. The stuck sockets have small
// buffers in the kernel.
func newCrowded(t *testing.T, size, stuck, readers int) *crowded {
	model := newDirected()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := &smallBufferListener{Listener: listener}
	x := &crowded{parley: serve(t, newFile(t), front, new(net.Dialer).DialContext, model)}
	x.text = bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. 0123456789 abcdef. "), size/64)
	session := x.must("POST", "/v1/sessions", map[string]any{ // with a window that allows a reply of the size of the text
		"userId": "user_0123456789abcdef", "contextConfig": map[string]any{"maxTokens": 100_000},
	})["sessionId"].(string)
	cursor := x.begin(session, "go on")["stream"].(map[string]any)["cursor"].(string)
	x.call = model.next(t)
	front.on.Store(true)
	x.stuck = x.crowd(stuck, 64<<10, session, cursor)
	front.on.Store(false)
	x.readers = x.crowd(readers, 0, session, cursor)
	return x
}

// speak makes the model send the text from offset on, in pieces. The model sends a piece after the first reader has read the
// previous piece. speak returns when all readers have read the terminal frame.
func (x *crowded) speak(offset, piece int) {
	x.t.Helper()
	pace := make(chan int, len(x.text)/piece) // offsets that the first reader has reached
	read := make(chan error, 1)
	go func() {
		read <- all(x.readers, func(s *rawSocket) error { return s.rest(x.text, offset, s == x.readers[0], pace) })
	}()
	for said := offset; said < len(x.text); said += piece {
		x.call.say(string(x.text[said : said+piece]))
		for seen := 0; seen < said+piece; {
			seen = max(seen, within(x.t, "the first reader", pace))
		}
	}
	x.call.end()
	if err := within(x.t, "the readers", read); err != nil {
		x.t.Fatal(err)
	}
}

func TestViewers_TenOfThousandStuck_MemoryBounded(t *testing.T) {
	const stuck, size, piece = 10, 512 << 10, 16 << 10
	viewers := 1000
	if raceDetector { // a thousand readers would be so slow that the server could drop some
		viewers = 100
	}
	x := newCrowded(t, size, stuck, viewers-stuck)
	x.call.say(string(x.text[:piece]))
	if err := all(x.readers, func(s *rawSocket) error { _, err := s.follow(x.text, 0, piece, false); return err }); err != nil {
		t.Fatal(err)
	}
	before := heap()
	x.speak(piece, piece)
	grown := heap() - before
	runtime.KeepAlive(x.readers) // the first measurement includes the readers' buffers
	t.Logf("%d of %d viewers read %d KiB; meanwhile the heap grew by %d KiB", len(x.readers), viewers, size>>10, grown>>10)
	// All viewers share the text's buffer (with spare capacity), the final message and the terminal frame: together 5.5 times the
	// text. On a starved machine, readers are at different offsets and share fewer frames. A queue for each stuck viewer would
	// add 10 times the text, or 20 times with the terminal frame.
	if grown > 10*size {
		t.Errorf("the heap grew by %.1f times the text", float64(grown)/size)
	}
}

// TestViewers_StuckThenRead_MissNothing has viewers that begin to read when the reply has ended. The reply takes less than a
// second. The server would drop a viewer only after 30 s without progress.
func TestViewers_StuckThenRead_MissNothing(t *testing.T) {
	x := newCrowded(t, 512<<10, 10, 1)
	x.speak(0, 16<<10)
	if err := all(x.stuck, func(s *rawSocket) error { return s.rest(x.text, 0, false, nil) }); err != nil {
		t.Error(err)
	}
}

// rest follows the reply from offset to its end. If leads is set, rest sends to pace each offset that it reaches.
func (s *rawSocket) rest(text []byte, offset int, leads bool, pace chan<- int) (err error) {
	for offset < len(text) {
		if offset, err = s.follow(text, offset, offset+1, false); err != nil {
			return err
		}
		if leads {
			pace <- offset
		}
	}
	_, err = s.follow(text, offset, len(text), true)
	return err
}

func TestViewers_ModelReasons_GetFrameWithoutCursor(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dial()
	s.mustSubscribe(session, "")
	s.must(sending("1", session, "hello"))
	c := model.next(t)
	c.request.Reasoning()
	sent := s.next("sent")
	s.next("message.created")
	s.next("message.created")
	if f := s.next("reply.reasoning"); f.SessionID != session || f.MessageID != sent.MessageID || f.Cursor != "" {
		t.Errorf("reasoning: %+v", f)
	}
	c.end()
	if f := s.next("message.delta"); f.Delta != done {
		t.Errorf("delta: %+v", f)
	}
	s.next("message.completed")
}
