package socket

import (
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"parley/stream/wire"
)

// recorder implements Audit. It sends the causes to a channel.
type recorder struct {
	noAudit
	causes chan string
}

func (r recorder) SocketClosed(_ Handshake, cause string) { r.causes <- cause }

// stalling is a connection whose client stops reading: like the connections of package transport, its writes then time out.
type stalling struct {
	net.Conn
	stalled atomic.Bool
}

func (s *stalling) Write(b []byte) (int, error) {
	if s.stalled.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	return s.Conn.Write(b)
}

func TestSocketClosed_EachCause_RecordedOnce(t *testing.T) {
	for want, end := range map[string]func(h *host, ws *websocket.Conn, server *stalling){
		"slow": func(h *host, ws *websocket.Conn, server *stalling) {
			server.stalled.Store(true)
			_ = ws.Write(h.t.Context(), websocket.MessageText, []byte(`{"type":"ping"}`))
		},
		"binary": func(h *host, ws *websocket.Conn, _ *stalling) {
			_ = ws.Write(h.t.Context(), websocket.MessageBinary, []byte("x"))
		},
		"": func(_ *host, ws *websocket.Conn, _ *stalling) { _ = ws.Close(websocket.StatusNormalClosure, "") },
	} {
		t.Run("cause "+want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := recorder{causes: make(chan string, 10)}
				h := newHost(t, func(o *Options) { o.Audit = r })
				var server *stalling
				h.wrap = func(conn net.Conn) net.Conn {
					server = &stalling{Conn: conn}
					return server
				}
				ws := h.dial()
				end(h, ws, server)
				synctest.Wait()
				close(r.causes)
				var got []string
				for cause := range r.causes {
					got = append(got, cause)
				}
				if want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []string{want}) {
					t.Errorf("the recorded causes are %q", got)
				}
			})
		})
	}
}

func TestCauses_EachCloseCode_HasCause(t *testing.T) {
	for code := wire.CloseCode(1000); code < 5000; code++ {
		if code.Reason() != "" && code != wire.CloseDraining && causes[code] == "" {
			t.Errorf("the close code %d has no cause", code)
		}
	}
}
