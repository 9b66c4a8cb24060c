package transport

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

const (
	// Stall is the time after which a connection is cut if the client accepts no bytes. 30 s are longer than a phone needs to
	// switch networks, and short enough that a dead client does not hold a connection for minutes.
	Stall = 30 * time.Second
	// writePiece is the number of bytes that counts as progress: each piece of a write gets its own deadline. A client that
	// accepts less than 16 KiB in 30 s is treated as dead.
	writePiece = 16 << 10
	// sendBuffer is the size of the kernel's send buffer. By default, the buffer grows to 4 MiB, so each client that reads
	// nothing would take that much memory. With this size, a client with a round-trip time of 100 ms gets about 2.5 MB/s.
	sendBuffer = 256 << 10
	// refusalTime is the life of a connection that is not served. It gives the client enough time to send a request and to read
	// the 503.
	refusalTime = 2 * time.Second
)

// conn is a connection of a client.
type conn struct {
	net.Conn // static

	// static
	owner   *Connections
	peer    netip.Addr
	refusal error     // the reason why requests on this connection are refused; nil if they are served
	expires time.Time // the time at which a connection with a refusal ends

	client netip.Prefix // guarded by owner.mu: the client that the connection counts for; the zero value for none
	closed bool         // guarded by owner.mu
}

// Write implements net.Conn. A write that makes no progress for Stall fails and cuts the connection.
func (c *conn) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(len(b), n+writePiece)]
		if err := c.SetWriteDeadline(time.Now().Add(Stall)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(piece)
		n += m
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.cut()
		}
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// cut closes the connection and makes the kernel discard the unsent bytes. Otherwise, the kernel would keep them and offer them
// to the client for minutes.
func (c *conn) cut() {
	c.owner.stalled.Add(1)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// SetReadDeadline implements net.Conn. If requests on the connection are refused, no deadline is later than expires.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.Conn.SetReadDeadline(c.bounded(t))
}

// SetWriteDeadline implements net.Conn. If requests on the connection are refused, no deadline is later than expires.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.bounded(t))
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return c.Conn.SetDeadline(c.bounded(t))
}

func (c *conn) bounded(t time.Time) time.Time {
	if c.refusal != nil && (t.IsZero() || t.After(c.expires)) {
		return c.expires
	}
	return t
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.owner.remove(c)
	return c.Conn.Close()
}

// CloseWrite closes the sending side. If net/http has not read a request to its end, it calls CloseWrite after the response. So
// the client can still read the response.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
