package redistest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Loser is a proxy that loses replies: the server runs a command, but the client gets no reply.
type Loser struct {
	Addr string // host:port

	// static
	t      testing.TB
	server string
	to     atomic.Pointer[[]byte] // commands that contain this text get no reply; nil if no reply is lost
	work   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu; the open connections; nil after the test
}

// NewLoser starts a proxy to the server at addr. The proxy forwards everything until LoseRepliesTo is called. It stops with the
// test.
func NewLoser(t testing.TB, addr string) *Loser {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Loser{Addr: listener.Addr().String(), t: t, server: addr, conns: make(map[net.Conn]struct{})}
	l.work.Go(func() { l.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.mu.Lock()
		for conn := range l.conns {
			_ = conn.Close()
		}
		l.conns = nil
		l.mu.Unlock()
		l.work.Wait()
	})
	return l
}

// LoseRepliesTo silences every connection on which the client sends a command that contains text. The proxy then drops all
// replies on this connection, even after Heal.
func (l *Loser) LoseRepliesTo(text string) {
	to := []byte(text)
	l.to.Store(&to)
}

// Heal ends LoseRepliesTo: the proxy silences no more connections. Silenced connections stay silent.
func (l *Loser) Heal() { l.to.Store(nil) }

func (l *Loser) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		server, err := net.Dial("tcp", l.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !l.add(client, server) {
			return
		}
		silent := new(atomic.Bool)
		l.work.Go(func() { l.pass(server, client, silent, true) })
		l.work.Go(func() { l.pass(client, server, silent, false) })
	}
}

// add registers the two sides of a connection, so that they are closed after the test. If the test is over, it closes them now
// and returns false.
func (l *Loser) add(both ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range both {
		if l.conns == nil {
			_ = conn.Close()
			continue
		}
		l.conns[conn] = struct{}{}
	}
	return l.conns != nil
}

// pass copies bytes from one side of a connection to the other until one side is closed. Then it closes both sides. commands is
// true if from is the client. If silent is set, pass drops the bytes of the server.
func (l *Loser) pass(to, from net.Conn, silent *atomic.Bool, commands bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if lost := l.to.Load(); commands && lost != nil && bytes.Contains(buffer[:n], *lost) {
			silent.Store(true) // before the command is forwarded
		}
		if commands || !silent.Load() {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
