package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A client may send frames together with its handshake. net/http may then read the frames before the WebSocket code takes over
// the connection. These bytes must not be lost.
func TestHandshake_FramesInSamePacket_AllAnswered(t *testing.T) {
	t.Parallel()
	p := serveIn(t, t.TempDir(), "PARLEY_ADMIN_KEY="+declaredKey)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	handshake := "GET /v1/stream HTTP/1.1\r\nHost: parley\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nAuthorization: Bearer " + declaredKey +
		"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: parley.v1\r\n\r\n"
	frames := ""
	for _, body := range []string{`{"type":"ping","id":"first"}`, `{"type":"` + strings.Repeat("x", 100) + `","id":"second"}`, `{"type":"ping","id":"third"}`} {
		frames += "\x81" + string([]byte{0x80 | byte(min(len(body), 126))})
		if len(body) > 125 {
			frames += string([]byte{byte(len(body) >> 8), byte(len(body))})
		}
		frames += "\x00\x00\x00\x00" + body // masked with zeros
	}
	if _, err := io.WriteString(conn, handshake+frames); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	var seen []byte
	for buffer := make([]byte, 4096); !bytes.Contains(seen, []byte(`"replyTo":"third"`)); {
		n, err := conn.Read(buffer)
		seen = append(seen, buffer[:n]...)
		if err != nil {
			t.Fatalf("%v, after %q", err, seen)
		}
	}
	if !bytes.Contains(seen, []byte(`"replyTo":"first"`)) || !bytes.Contains(seen, []byte(`"replyTo":"second"`)) {
		t.Errorf("some frames got no response; the server sent %q", seen)
	}
}
