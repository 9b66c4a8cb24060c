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
	"time"
)

// tight is a listener whose connections can hold little that was not read, while on is set.
type tight struct {
	net.Listener
	on atomic.Bool
}

func (l *tight) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && l.on.Load() {
		err = conn.(*net.TCPConn).SetWriteBuffer(32 << 10)
	}
	return conn, err
}

// scratch are buffers for frames, so that a thousand viewers in this process do not need one each.
var scratch = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// follow reads a reply's deltas off the socket and holds them against text, from offset on. It returns where it stands
// when it has seen until bytes of it, or, if those are all, the terminal frame.
func (s *rawSocket) follow(text []byte, offset, until int, whole bool) (int, error) {
	for offset < until || whole {
		op, n, err := s.header()
		if err != nil {
			return offset, fmt.Errorf("at %d: %w", offset, err)
		}
		if op == opClose {
			return offset, fmt.Errorf("at %d: closed by the server", offset)
		}
		if n > 64<<10 { // the terminal frame: it holds the whole text
			_, err := io.CopyN(io.Discard, s.in, int64(n))
			if err == nil && offset != len(text) {
				err = fmt.Errorf("the end came at %d of %d", offset, len(text))
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

// takeDelta holds a delta, in which nothing is escaped, against text, and returns where it ends.
func takeDelta(frame, text []byte, offset int) (int, error) {
	_, rest, _ := bytes.Cut(frame, []byte(`"offset":`))
	number, rest, _ := bytes.Cut(rest, []byte(`,"delta":"`))
	delta, _, _ := bytes.Cut(rest, []byte(`"`))
	at, err := strconv.Atoi(string(number))
	if err != nil || at != offset || offset+len(delta) > len(text) || !bytes.Equal(delta, text[offset:offset+len(delta)]) {
		return offset, fmt.Errorf("the delta at %d: %.200s", offset, frame)
	}
	return offset + len(delta), nil
}

// crowd opens n sockets on the reply, all of which have seen it begin. A buffer that is not 0 is the kernel's for what
// is not read: at least a segment of the loopback, or the kernel takes its time.
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

// all runs f for all sockets at once and returns the first error.
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

func TestAThousandViewersOfWhomTenDoNotRead(t *testing.T) {
	const viewers, stuck, size, piece = 1000, 10, 512 << 10, 16 << 10
	text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. 0123456789 abcdef. "), size/64)
	model := newDirected()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := &tight{Listener: listener}
	p := serve(t, newFile(t), front, new(net.Dialer).DialContext, model)
	session := p.session()
	cursor := p.begin(session, "go on")["stream"].(map[string]any)["cursor"].(string)
	c := model.next(t)
	front.on.Store(true)
	others := p.crowd(stuck, 64<<10, session, cursor)
	front.on.Store(false)
	readers := p.crowd(viewers-stuck, 0, session, cursor)
	began := time.Now()
	c.say(string(text[:piece]))
	if err := all(readers, func(s *rawSocket) error { _, err := s.follow(text, 0, piece, false); return err }); err != nil {
		t.Fatal(err)
	}
	before := heap()

	pace := make(chan int, size/piece) // how far the first of the readers is
	read := make(chan error, 1)
	go func() {
		read <- all(readers, func(s *rawSocket) error { return s.rest(text, piece, s == readers[0], pace) })
	}()
	for said := piece; said < size; said += piece {
		c.say(string(text[said : said+piece]))
		for seen := 0; seen < said+piece; {
			seen = max(seen, within(t, "a reader", pace))
		}
	}
	c.end()
	if err := within(t, "the readers", read); err != nil {
		t.Fatal(err)
	}
	took, grown := time.Since(began), heap()-before
	runtime.KeepAlive(readers) // their buffers were counted before
	t.Logf("%d of %d viewers read %d KiB in %v; meanwhile the heap grew by %d KiB", len(readers), viewers, size>>10, took, grown>>10)
	// The text itself, with room to grow, its final message, and the frame of that are shared by all: 5.5 times. A queue for
	// each of the ten would be 10 times the text more, and 20 with the final message.
	if grown > 8*size {
		t.Errorf("the heap grew by %.1f times the text", float64(grown)/size)
	}
	if took > writeDeadline-5*time.Second {
		t.Skip("the machine is too slow to see the ten before they are dropped")
	}
	if err := all(others, func(s *rawSocket) error {
		return s.rest(text, 0, false, nil)
	}); err != nil {
		t.Errorf("%v after the others had begun, one that had not read: %v", time.Since(began), err)
	}
}

// writeDeadline is how long the server lets a write stand without progress (design section 4).
const writeDeadline = 30 * time.Second

// rest follows the reply from offset to its end, and tells how far it is at every step if it leads.
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
