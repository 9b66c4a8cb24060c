package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"

	"parley/auth"
	"parley/conversation"
	"parley/stream"
)

// countingClient opens a WebSocket for each turn. Its own allocations are few: it writes prepared frames, and looks for a few
// words in the frames of the server.
type countingClient struct {
	t        testing.TB
	p        *parley
	key      string
	sessions []string
	shown    chan struct{} // gets a value for each delta; the model waits for it before it writes the next token
	buffer   []byte
	reader   *bufio.Reader
}

// maskedText returns a text frame of a client. The mask is zero, so that the text stays readable.
func maskedText(text string) []byte {
	frame := []byte{0x81, 0x80 | 126}
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(text)))
	return append(append(frame, 0, 0, 0, 0), text...)
}

// until reads frames until one contains want.
func (c *countingClient) until(want []byte) {
	for {
		header := c.buffer[:4]
		c.read(header[:2])
		n := int(header[1])
		if n == 126 {
			c.read(header[2:])
			n = int(binary.BigEndian.Uint16(header[2:]))
		}
		frame := c.buffer[:n]
		c.read(frame)
		if bytes.Contains(frame, []byte(`"message.delta"`)) {
			c.shown <- struct{}{}
		}
		if bytes.Contains(frame, want) {
			return
		}
	}
}

func (c *countingClient) read(b []byte) {
	if _, err := io.ReadFull(c.reader, b); err != nil {
		c.t.Fatal(err)
	}
}

// turn opens a socket, subscribes to the next session, sends a message and reads the whole reply.
func (c *countingClient) turn() {
	session := c.sessions[0]
	c.sessions = c.sessions[1:]
	conn, err := net.Dial("tcp", c.p.url[len("http://"):])
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	c.reader.Reset(conn)
	fmt.Fprintf(conn, "GET /v1/stream HTTP/1.1\r\nHost: parley\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: parley.v1\r\nAuthorization: Bearer %s\r\n\r\n", c.key)
	for line := []byte("-"); len(bytes.TrimSpace(line)) > 0; {
		if line, err = c.reader.ReadSlice('\n'); err != nil {
			c.t.Fatal(err)
		}
	}
	c.until([]byte(`"welcome"`))
	_, _ = conn.Write(maskedText(`{"type":"subscribe","id":"1","sessionId":"` + session + `"}`))
	c.until([]byte(`"subscribed"`))
	_, _ = conn.Write(maskedText(`{"type":"send","id":"2","sessionId":"` + session + `","content":"What is the capital of France?"}`))
	c.until([]byte(`"message.completed"`))
	_, _ = conn.Write([]byte{0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8})
	_, _ = c.reader.Discard(4)
}

func newCountingClient(t testing.TB, turns int) *countingClient {
	c := &countingClient{t: t, shown: make(chan struct{}), buffer: make([]byte, 1<<16), reader: bufio.NewReader(nil)}
	c.p = startOn(t, newFile(t), modelFunc(func(_ context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
		token := []byte("word ")
		for range 200 {
			write(token)
			<-c.shown
		}
		return stream.Result{FinishReason: "stop", Usage: &stream.Usage{Prompt: 10, Completion: 200}}, nil
	}), early)
	c.key = c.p.key("acme", auth.ReadSessions, auth.WriteSessions, auth.ReadMessages, auth.WriteMessages)
	for range turns {
		made, err := c.p.service.Store.CreateSession(t.Context(), conversation.Owner{Account: "acme", Mode: conversation.Live}, conversation.NewSession{
			UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig,
		})
		if err != nil {
			t.Fatal(err)
		}
		c.sessions = append(c.sessions, made.Session.ID)
	}
	return c
}

// maxTurnOnSocket is the maximum number of allocations of a turn with its socket, subscription and 200 tokens, with a margin of 3 %.
// It includes both commits of the turn, which turns share under load, and the 20 allocations of the client.
const maxTurnOnSocket = 840

func TestTurnOnSocket_AllocationsBounded(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	const runs = 20
	c := newCountingClient(t, runs+1)
	n := testing.AllocsPerRun(runs, c.turn)
	t.Logf("%.0f allocations", n)
	if n > maxTurnOnSocket {
		t.Errorf("%.0f allocations, want at most %d", n, maxTurnOnSocket)
	}
}

func BenchmarkTurnOnSocket(b *testing.B) {
	c := newCountingClient(b, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		c.turn()
	}
}
