package server_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"parley/conversation/service"
	"parley/server"
	"parley/server/transport/transporttest"
	"parley/stream"
)

// startPiped runs a server on an embedded store and on a network in memory until the test ends. On this network, a
// complete server can run in a synctest bubble, where hours pass at once.
func startPiped(t testing.TB, model stream.Model, options ...option) *parley {
	l := transporttest.Listen()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx, nil) }
	silence := func(_ *server.Options, o *service.Options) { // on the bubble's clock; some tests depend on these timeouts
		o.Timeouts = stream.Timeouts{FirstByte: 20 * time.Second, Stall: 20 * time.Second}
	}
	return serve(t, newFile(t), l, dial, model, append([]option{silence}, options...)...)
}

// rawSocket is a WebSocket client without a library. It can send invalid frames. It does not answer pings or close frames.
type rawSocket struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader

	complete bool // the last data frame that was read has ended its message
}

// dialRaw opens a rawSocket.
func (p *parley) dialRaw() *rawSocket {
	p.t.Helper()
	conn, err := p.dialNet(context.Background(), "tcp", p.url[len("http://"):])
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return p.handshake(conn)
}

func (p *parley) handshake(conn net.Conn) *rawSocket {
	p.t.Helper()
	s := &rawSocket{t: p.t, conn: conn, in: bufio.NewReaderSize(conn, 4096)}
	_, err := io.WriteString(conn, "GET /v1/stream HTTP/1.1\r\nHost: parley\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: parley.v1\r\nAuthorization: Bearer "+adminKey+"\r\n\r\n")
	if err != nil {
		p.t.Fatal(err)
	}
	response, err := http.ReadResponse(s.in, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		p.t.Fatalf("%v, %v", response, err)
	}
	return s
}

const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
)

// write sends one unfragmented frame, masked with zeros.
func (s *rawSocket) write(op byte, payload []byte) error {
	frame := []byte{0x80 | op}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	frame = append(frame, 0, 0, 0, 0)
	_, err := s.conn.Write(append(frame, payload...))
	return err
}

// header reads a frame's header. If the frame is part of a message, complete tells whether it is the last part.
func (s *rawSocket) header() (op byte, n int, err error) {
	var b [8]byte
	if _, err := io.ReadFull(s.in, b[:2]); err != nil {
		return 0, 0, err
	}
	op, n = b[0]&15, int(b[1])
	if op < opClose { // control frames come between the frames of a message
		s.complete = b[0]&0x80 != 0
	}
	switch n {
	case 126:
		_, err = io.ReadFull(s.in, b[:2])
		n = int(binary.BigEndian.Uint16(b[:2]))
	case 127:
		_, err = io.ReadFull(s.in, b[:])
		n = int(binary.BigEndian.Uint64(b[:]))
	}
	return op, n, err
}

// read reads a frame.
func (s *rawSocket) read() (op byte, payload []byte, err error) {
	op, n, err := s.header()
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(s.in, payload)
	return op, payload, err
}
