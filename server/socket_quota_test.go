package server_test

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
)

// open opens a socket with a key.
func (p *parley) open(key string, protocol string) (*websocket.Conn, error) {
	p.t.Helper()
	conn, response, err := websocket.Dial(p.t.Context(), "ws"+p.url[len("http"):]+"/v1/stream", &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: documented{p.t, &http.Transport{DialContext: p.dialNet, DisableKeepAlives: true}}},
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + key}},
		Subprotocols: []string{protocol},
	})
	if err != nil {
		return nil, errors.Join(err, &refusal{response})
	}
	p.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn, nil
}

func (p *parley) mustOpen(key, protocol string) *websocket.Conn {
	p.t.Helper()
	conn, err := p.open(key, protocol)
	if err != nil {
		p.t.Fatal(err)
	}
	return conn
}

// wantNoSocket tries to open a socket of an account that has used up its quota of two sockets. The handshake must get 429.
func (p *parley) wantNoSocket(key, protocol string) {
	p.t.Helper()
	_, err := p.open(key, protocol)
	refused := new(refusal)
	if !errors.As(err, &refused) {
		p.t.Fatalf("the handshake was not refused: %v", err)
	}
	body, err := io.ReadAll(refused.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	got := decodeInto[struct {
		Error struct {
			Code, Quota string
			Used, Limit int
		}
	}](p.t, answer{raw: string(body)}).Error
	if refused.StatusCode != 429 || got.Code != "quota_exceeded" || got.Quota != "sockets" || got.Used != 2 || got.Limit != 2 {
		p.t.Errorf("%d %s", refused.StatusCode, body)
	}
}

// awaitSocket opens a socket as soon as the account has room for it.
func (p *parley) awaitSocket(key, protocol string) {
	p.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := p.open(key, protocol); err == nil {
			return
		} else if time.Since(began) > testTimeout {
			p.t.Fatal(err)
		}
	}
}

const twoSockets = `{"pro":{"sockets":2,"requestsPerMinute":1000000}}`

func TestHandshake_QuotaOfSocketsReached_429(t *testing.T) {
	t.Parallel()
	p := start(t, echo, withTiers(t, twoSockets))
	key, other := p.key("acme", auth.ReadMessages), p.key("bravo", auth.ReadMessages)
	first := p.mustOpen(key, "parley.v1")
	p.mustOpen(key, "ai-sdk.v7")
	p.wantNoSocket(key, "parley.v1")
	p.wantNoSocket(key, "ai-sdk.v7")
	p.mustOpen(other, "parley.v1")
	_ = first.Close(websocket.StatusNormalClosure, "")
	p.awaitSocket(key, "ai-sdk.v7")
	p.wantNoSocket(key, "parley.v1")
}

func TestNodes_SocketsOnBoth_ShareQuota(t *testing.T) {
	t.Parallel()
	a, b := nodes(t, echo, withTiers(t, twoSockets))
	key := a.key("acme", auth.ReadMessages)
	first := a.mustOpen(key, "parley.v1")
	b.mustOpen(key, "parley.v1")
	a.wantNoSocket(key, "parley.v1")
	b.wantNoSocket(key, "parley.v1")
	b.mustOpen(b.key("bravo", auth.ReadMessages), "parley.v1")
	_ = first.Close(websocket.StatusNormalClosure, "")
	b.awaitSocket(key, "parley.v1")
	a.wantNoSocket(key, "parley.v1")
}
