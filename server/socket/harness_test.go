package socket

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/server/transport/transporttest"
	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const aSession = "session_0123456789abcdef"

// emptyConversation implements Conversation. Its sessions have no events.
type emptyConversation struct {
	Conversation
	hub  *stream.Hub
	live bool
}

func (e *emptyConversation) View(_ context.Context, _ conversation.Owner, session string, _ *stream.Position, wake func()) (
	*stream.Viewer, stream.Position, bool, error,
) {
	viewer := e.hub.Subscribe(session, e, wake)
	viewer.Start(stream.Position{})
	return viewer, stream.Position{}, true, nil
}

// EntriesFrom implements stream.History.
func (e *emptyConversation) EntriesFrom(context.Context, string, string, bool, int) ([]*stream.Entry, error) {
	return nil, nil
}

func (e *emptyConversation) IsLive(string) bool { return e.live }

// windows is a store that only counts frames. All keys share one window.
type windows struct {
	auth.Store
	mu     sync.Mutex
	window limit.Window // guarded by mu
	leases int          // guarded by mu; number of leases
}

func (w *windows) TakeFrames(_ context.Context, _ auth.Owner, _ string, take limit.FrameTake) (limit.FrameLease, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases++
	return w.window.Lease(time.Now(), take), nil
}

// noAudit implements Audit and Unavailable. It records nothing.
type noAudit struct{}

func (noAudit) SocketClosed(Handshake, string)                {}
func (noAudit) QuotaRefused(auth.Principal, *auth.QuotaError) {}
func (noAudit) Record(string, error, bool, ...any)            {}

type validKeys struct{}

func (validKeys) Revalidate(context.Context, auth.Principal) error { return nil }

// host is a registry behind an HTTP server on a network in memory.
type host struct {
	*Registry
	t       testing.TB
	network *transporttest.Listener
	wrap    func(net.Conn) net.Conn // if it is not nil, changes the server's side of each connection
}

func newHost(t testing.TB, change func(*Options)) *host {
	h := &host{t: t, network: transporttest.Listen()}
	limits, keys := auth.NewLimits(limit.DefaultTiers()), auth.NewKeys(&windows{}, auth.Options{})
	options := Options{
		Conversation: &emptyConversation{hub: stream.NewHub()}, Keys: validKeys{},
		Admission: limits.Admission, Frames: keys.NewFrames(limits), Revocation: NewRevocationMonitor(validKeys{}.Revalidate), Audit: noAudit{}, Unavailable: noAudit{},
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&options)
	}
	h.Registry = NewRegistry(options)
	caller := auth.Principal{KeyID: "key_0123456789abcdef", Scopes: []auth.Scope{auth.Admin}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := CheckHandshake(r, ParseOffers(r.Header), nil); err != nil {
			t.Error(err)
		}
		h.Upgrade(w, r, Handshake{Principal: caller, RequestID: "req_1", Closed: func() {}})
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(h.network) }()
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Close()
		<-served
		h.BeginDrain()
		h.Drain(now)
	})
	return h
}

func (h *host) dialNet(ctx context.Context, _, _ string) (net.Conn, error) {
	return h.network.Dial(ctx, h.wrap)
}

// dial opens a socket with the client library, which answers pings and close frames while the test reads.
func (h *host) dial() *websocket.Conn {
	h.t.Helper()
	transport := &http.Transport{DialContext: h.dialNet, DisableKeepAlives: true}
	ws, _, err := websocket.Dial(h.t.Context(), "ws://parley/v1/stream", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = ws.CloseNow() })
	if _, welcome, err := ws.Read(h.t.Context()); err != nil {
		h.t.Fatalf("%s, %v", welcome, err)
	}
	return ws
}

// rawSocket is a WebSocket client without a library. It can send invalid frames, and it answers neither pings nor close
// frames.
type rawSocket struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

// dialRaw opens a rawSocket. It does not read the welcome.
func (h *host) dialRaw() *rawSocket {
	h.t.Helper()
	conn, err := h.dialNet(context.Background(), "tcp", "")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	s := &rawSocket{t: h.t, conn: conn, in: bufio.NewReader(conn)}
	_, err = io.WriteString(conn, "GET /v1/stream HTTP/1.1\r\nHost: parley\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: parley.v1\r\n\r\n")
	if err != nil {
		h.t.Fatal(err)
	}
	response, err := http.ReadResponse(s.in, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		h.t.Fatalf("%v, %v", response, err)
	}
	return s
}

const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// write writes one unfragmented frame, with a mask of zeros.
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

// read reads a frame of less than 64 KiB.
func (s *rawSocket) read() (op byte, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return 0, nil, err
	}
	op = head[0] & 15
	n := int(head[1])
	if n == 126 {
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(head[:]))
	} else if n > 126 {
		return 0, nil, errors.New("the frame is too large for the test")
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(s.in, payload)
	return op, payload, err
}

// next reads a text frame.
func (s *rawSocket) next() string {
	s.t.Helper()
	op, payload, err := s.read()
	if err != nil || op != opText {
		s.t.Fatalf("opcode %d, %q, %v", op, payload, err)
	}
	return string(payload)
}

// closed reads until the server closes the socket, and returns the close code. It returns 0 if the connection ended without a
// close frame.
func (s *rawSocket) closed() int {
	s.t.Helper()
	for {
		op, payload, err := s.read()
		if err != nil {
			return 0
		}
		if op == opClose {
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}
