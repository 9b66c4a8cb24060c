package socket

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// readBuffer and writeBuffer are the sizes of a socket's buffers, in bytes. The buffers of net/http have 4 KiB each, which
	// would add 6.5 KiB to the 15 KiB of an idle socket. Large frames bypass the buffers.
	readBuffer  = 512
	writeBuffer = 1 << 10
)

// hijacker gives the WebSocket library a connection with small buffers.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn // set by Hijack
}

// Hijack implements http.Hijacker.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	_ = conn.SetDeadline(time.Time{})
	h.conn = conn
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
