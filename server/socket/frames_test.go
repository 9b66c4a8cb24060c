package socket

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/auth/limit"
	"parley/stream/wire"
)

// dialAs opens a socket that speaks a protocol, without reading its first frame.
func (h *host) dialAs(protocol string) *websocket.Conn {
	h.t.Helper()
	transport := &http.Transport{DialContext: h.dialNet, DisableKeepAlives: true}
	ws, _, err := websocket.Dial(h.t.Context(), "ws://parley/v1/stream", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{protocol},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// maxFlood is the number of frames after which a flood ends, even if the server refuses none. Otherwise, the clock of the
// synctest bubble would stand still.
const maxFlood = 5_000

// flood sends the frame on a socket for a minute, as often as the server reads it. flood replaces each %d in the frame with the
// number of the frame. It returns the numbers of served and of refused frames, and the first refusal.
func flood(h *host, protocol, frame string) (served, refused int, first string) {
	ws := h.dialAs(protocol)
	defer time.AfterFunc(59*time.Second, func() { _ = ws.CloseNow() }).Stop()
	go func() {
		for i := range maxFlood {
			text := strings.ReplaceAll(frame, "%d", strconv.Itoa(i))
			if ws.Write(context.Background(), websocket.MessageText, []byte(text)) != nil {
				return
			}
		}
	}()
	for {
		_, response, err := ws.Read(context.Background())
		switch text := string(response); {
		case err != nil:
			return served, refused, first
		case strings.Contains(text, `"welcome"`):
		case !strings.Contains(text, "frames a minute"):
			served++
		default:
			if refused++; first == "" {
				first = text
			}
		}
	}
}

// TestFrames_FloodOfOneKey_1200AMinuteServed floods one socket of a key of the free tier. Without framesPerMinute, the server
// would serve every frame.
func TestFrames_FloodOfOneKey_1200AMinuteServed(t *testing.T) {
	for name, c := range map[string]struct{ protocol, frame, refusal string }{
		"subscribe": {wire.Protocol, `{"type":"subscribe","id":"%d","sessionId":"` + aSession + `"}`, `"replyTo":"1200"`},
		"ping":      {wire.Protocol, `{"type":"ping","id":"%d"}`, `"code":"rate_limit_exceeded"`},
		"cancel":    {wire.Protocol, `{"type":"cancel","id":"%d","sessionId":"` + aSession + `","messageId":"x"}`, `"retryAfter":`},
		"AI SDK":    {wire.AISDKProtocol, `{"type":"resume","requestId":"%d","id":"x"}`, `"requestId":"1200","errorText":"The limit of 1200 frames a minute`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &windows{}
				h := newHost(t, func(o *Options) {
					o.Frames = auth.NewKeys(store, auth.Options{}).NewFrames(auth.NewLimits(limit.DefaultTiers()))
				})
				served, refused, first := flood(h, c.protocol, c.frame)
				if served != 1_200 || refused < 100 || refused > 1+59*5 {
					t.Errorf("%d frames were served and %d refused in a minute, want 1,200 and about 5 a second", served, refused)
				}
				if !strings.Contains(first, c.refusal) {
					t.Errorf("the first refusal is %s, want it to contain %s", first, c.refusal)
				}
				if store.leases > 8 {
					t.Errorf("the flood took %d leases from the store, want 8 at most", store.leases)
				}
			})
		})
	}
}

// TestFrames_FloodOfPongs_CountsAsFrames sends pongs that answer no ping. Afterwards, the server must refuse a frame.
func TestFrames_FloodOfPongs_CountsAsFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		s.next()
		go func() {
			for range 1_200 {
				if s.write(opPong, nil) != nil {
					return
				}
			}
			_ = s.write(opText, []byte(`{"type":"ping"}`))
		}()
		if f := s.next(); !strings.Contains(f, "framesPerMinute") {
			t.Errorf("after 1,200 pongs, a frame gets %s", f)
		}
	})
}

// TestRead_EndlessEmptyFragments_SocketCut sends empty fragments of one message. They must not occupy the server for
// messageTimeout.
func TestRead_EndlessEmptyFragments_SocketCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		s.next()
		fragments := make(chan int)
		go func() {
			sent, fragment := 0, bytes.Repeat([]byte{0, 0x80, 0, 0, 0, 0}, 1000)
			_, err := s.conn.Write([]byte{opText, 0x80, 0, 0, 0, 0})
			for ; err == nil && sent < 2_000_000; sent += 1000 {
				_, err = s.conn.Write(fragment)
			}
			fragments <- sent
		}()
		s.closed()
		_ = s.conn.Close()
		if sent := <-fragments; sent > 1_000_000 {
			t.Errorf("the socket was cut after %d empty fragments, want less than a million", sent)
		}
	})
}

// TestFrames_FloodOfPings_Slowed sends WebSocket pings for a minute. The server must answer each ping that it reads, but read
// only a few pings a second above the limit.
func TestFrames_FloodOfPings_Slowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHost(t, nil).dialRaw()
		s.next()
		go func() {
			for range maxFlood {
				if s.write(opPing, []byte("x")) != nil {
					return
				}
			}
		}()
		defer time.AfterFunc(59*time.Second, func() { _ = s.conn.Close() }).Stop()
		pongs := 0
		for {
			op, _, err := s.read()
			if err != nil {
				break
			}
			if op == opPong {
				pongs++
			}
		}
		if pongs < 1_200 || pongs > 1_200+1+59*5 {
			t.Errorf("%d pings were answered in a minute, want 1,200 and about 5 a second", pongs)
		}
	})
}
