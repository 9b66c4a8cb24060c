package transport

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

const (
	// Stall is the time after which a connection is cut if the client accepts no bytes. 30 s are longer than a phone needs to
	// switch networks, and short enough that a dead client does not hold a connection for minutes.
	Stall = 30 * time.Second
	// writePiece is the number of bytes that counts as progress: each piece of a write gets its own deadline. A client that
	// accepts less than 16 KiB in 30 s is treated as dead.
	writePiece = 16 << 10
	// renewAfter is the time for which the writes on a connection share a deadline.
	renewAfter = Stall / 4
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

	deadline atomic.Int64 // the shared deadline of writes, in ns of Unix time; 0 for none

	client netip.Prefix // guarded by owner.mu: the client that the connection counts for; the zero value for none
	closed bool         // guarded by owner.mu
}

// Write implements net.Conn. A write that makes no progress for Stall fails and cuts the connection.
func (c *conn) Write(b []byte) (n int, err error) {
	for {
		m, err := c.writeInTime(b[n:min(len(b), n+writePiece)])
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// writeInTime writes a piece within Stall. Setting a deadline costs 2 % of the CPU time of a stream. So pieces share a deadline for
// renewAfter. If a shared deadline ends the write too early, the write goes on with the deadline of this piece.
func (c *conn) writeInTime(piece []byte) (n int, err error) {
	deadline := c.bounded(time.Now().Add(Stall))
	if deadline.UnixNano()-c.deadline.Load() > int64(renewAfter) {
		if err := c.renew(deadline); err != nil {
			return 0, err
		}
	}
	for {
		m, err := c.Conn.Write(piece[n:])
		n += m
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !time.Now().Before(deadline) {
			c.cut()
			return n, err
		}
		if err := c.renew(deadline); err != nil {
			return n, err
		}
	}
}

// renew sets the shared deadline of writes.
func (c *conn) renew(deadline time.Time) error {
	c.deadline.Store(deadline.UnixNano())
	return c.Conn.SetWriteDeadline(deadline)
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
	c.deadline.Store(0)
	return c.Conn.SetWriteDeadline(c.bounded(t))
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.deadline.Store(0)
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
