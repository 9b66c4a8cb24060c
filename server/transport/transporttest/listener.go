// Package transporttest has a network in memory. With it, a test of a server can run in a synctest bubble, where hours
// pass at once. Only tests import it.
package transporttest

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener on a network in memory. Its methods may be called from any goroutine.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a Listener.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial returns the client's side of a new connection. If wrap is not nil, Accept returns the result of wrap for the
// server's side. The error is net.ErrClosed, or that of ctx.
func (l *Listener) Dial(ctx context.Context, wrap func(net.Conn) net.Conn) (net.Conn, error) {
	client, server := net.Pipe()
	if wrap != nil {
		server = wrap(server)
	}
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "parley"} }
