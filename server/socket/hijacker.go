package socket

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"parley/stream/wire"
)

const (
	// readBuffer and writeBuffer are the sizes of a socket's buffers, in bytes. The buffers of net/http have 4 KiB each, which
	// would add 6.5 KiB to the 12 KiB of an idle socket. Large frames bypass the buffers.
	readBuffer  = 512
	writeBuffer = 1 << 10
	// maxMessageBytes is the maximum number of bytes that a message may take on the connection, with the headers of its
	// fragments and the pings in between. Otherwise, a client could send empty fragments for messageTimeout, at the cost of half a
	// core. A message of MaxFrame may still have fragments of 2 bytes.
	maxMessageBytes = 4 * wire.MaxFrame
)

// boundedConn is a connection on which a message has at most maxMessageBytes.
type boundedConn struct {
	net.Conn
	left      atomic.Int64 // the number of bytes that the message may still take, while inMessage is set
	inMessage atomic.Bool
}

// begin starts a message.
func (c *boundedConn) begin() {
	c.left.Store(maxMessageBytes)
	c.inMessage.Store(true)
}

// end ends the message.
func (c *boundedConn) end() { c.inMessage.Store(false) }

// Read implements net.Conn. It returns [websocket.ErrMessageTooBig] if the message takes too many bytes.
func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.inMessage.Load() && c.left.Add(-int64(n)) < 0 {
		return n, websocket.ErrMessageTooBig
	}
	return n, err
}

// hijacker gives the WebSocket library a connection with small buffers.
type hijacker struct {
	http.ResponseWriter
	conn *boundedConn // set by Hijack
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	_ = conn.SetDeadline(time.Time{})
	h.conn = &boundedConn{Conn: conn}
	reader := bufio.NewReaderSize(h.conn, readBuffer)
	if len(early) > 0 {
		// The client may have sent bytes before the response. These bytes must be in the buffer: the library takes them from
		// the buffer and reads all later bytes from the connection.
		reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), h.conn), max(readBuffer, len(early)))
		_, _ = reader.Peek(len(early))
	}
	return h.conn, bufio.NewReadWriter(reader, bufio.NewWriterSize(h.conn, writeBuffer)), nil
}

// WriteHeaderNow sends the status line if the response writer delays it, as gin's does. The library calls this method.
func (h *hijacker) WriteHeaderNow() {
	if delayed, ok := h.ResponseWriter.(interface{ WriteHeaderNow() }); ok {
		delayed.WriteHeaderNow()
	}
}
