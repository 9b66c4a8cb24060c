package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/server"
	"parley/stream/wire"
)

// dialWith opens a socket with a key's secret and reads the welcome frame.
func (p *parley) dialWith(t *testing.T, secret string) *socket {
	t.Helper()
	s, err := p.tryDial(p.url, websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}})
	if err != nil {
		t.Fatal(err)
	}
	s.next("welcome")
	return s
}

// readingSocket is a socket that the test reads in the background, so that the client answers the server's pings.
type readingSocket struct {
	*socket
	pongs chan struct{}
	ended chan closing
}

// closing is the end of a connection.
type closing struct {
	code int
	at   time.Time
}

// dialReading opens a socket with a key's secret and reads in the background until the connection ends.
func (p *parley) dialReading(t *testing.T, secret string) readingSocket {
	t.Helper()
	h := readingSocket{p.dialWith(t, secret), make(chan struct{}, 8), make(chan closing, 1)}
	go func() {
		for {
			_, _, err := h.conn.Read(context.Background())
			if err != nil {
				h.ended <- closing{int(websocket.CloseStatus(err)), time.Now()}
				return
			}
			h.pongs <- struct{}{}
		}
	}()
	return h
}

// wantEnded waits until the socket is closed. The close code must be 4401, and the close must come within a second after
// from.
func (h readingSocket) wantEnded(t *testing.T, what string, from time.Time) {
	t.Helper()
	c := <-h.ended
	if after := c.at.Sub(from); c.code != int(wire.CloseUnauthorized) || after < 0 || after > time.Second {
		t.Errorf("%s: closed with %d, %v after the secret became invalid", what, c.code, after)
	}
}

func TestInvalidKey_OpenSockets_ClosedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		admin := auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}}
		rotated, first := p.newKey("acme", auth.Live, admin)
		_, second, err := p.keys.RotateFor(t.Context(), rotated.Owner, rotated.ID)
		if err != nil {
			t.Fatal(err)
		}
		graceEnds := time.Now().Truncate(time.Millisecond).Add(24 * time.Hour)
		time.Sleep(24*time.Hour - time.Minute) // no socket is open yet, so there are no pings in this time

		stays, declared, renewed := p.dialReading(t, p.key("acme", auth.Admin)), p.dialReading(t, adminKey), p.dialReading(t, second)
		p.dialReading(t, first).wantEnded(t, "previous secret, 24 hours after the rotation", graceEnds)

		revoked, secret := p.newKey("acme", auth.Live, admin)
		two := []readingSocket{p.dialReading(t, secret), p.dialReading(t, secret)}
		time.Sleep(time.Minute)
		if err := p.keys.RevokeFor(t.Context(), revoked.Owner, revoked.ID); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		for _, h := range two {
			h.wantEnded(t, "secret of a revoked key", from)
		}

		admin.ExpiresAt = time.Now().Add(time.Minute).Truncate(time.Millisecond)
		_, secret = p.newKey("acme", auth.Live, admin)
		p.dialReading(t, secret).wantEnded(t, "secret of an expired key", admin.ExpiresAt)

		for _, h := range []readingSocket{stays, declared, renewed} {
			h.must(map[string]any{"type": "ping"})
			<-h.pongs
			_ = h.conn.CloseNow()
			<-h.ended
		}
	})
}

func TestRevokedKey_FramesRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		key, secret := p.newKey("acme", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
		session := p.call("POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, with(secret)...).body["sessionId"].(string)
		s := p.dialWith(t, secret)
		if err := p.keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"send", "subscribe", "cancel"} {
			request := map[string]any{"type": kind, "sessionId": session}
			switch kind {
			case "send":
				request["content"] = "hello"
			case "cancel":
				request["messageId"] = "msg_0000000000000000"
			}
			s.must(request)
			if f := s.next("error"); f.code != "invalid_token" {
				t.Errorf("%s: %s, want invalid_token", kind, f.Error)
			}
		}
		if code := s.closed(); code != int(wire.CloseUnauthorized) {
			t.Errorf("closed with %d, want 4401", code)
		}
	})
}

// TestRevokedKey_PingAfterClose_NoResponse has a client that sends a ping before it reads the close frame.
func TestRevokedKey_PingAfterClose_NoResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		key, secret := p.newKey("acme", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
		session := p.call("POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, with(secret)...).body["sessionId"].(string)
		s := p.dialWith(t, secret)
		s.mustSubscribe(session, "")
		if err := p.keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the server has sent the close frame, and the client has not read it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = s.conn.Write(ctx, websocket.MessageText, []byte(`{"type":"ping","id":"late"}`))
		for {
			f, err := s.read()
			if err != nil {
				break
			}
			t.Errorf("the client got %s", f.raw)
		}
	})
}

func TestRevokedKey_EventStream_EndsWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		key, secret := p.newKey("acme", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
		session := p.call("POST", "/v1/sessions", `{"userId":"user_0123456789abcdef"}`, with(secret)...).body["sessionId"].(string)
		reply := p.call("POST", "/v1/sessions/"+session+"/messages", `{"content":"hello","streaming":true}`, with(secret)...).body["messageId"].(string)
		call := model.next(t)
		call.say("so far")
		request, err := http.NewRequest("GET", p.url+"/v1/sessions/"+session+"/messages/"+reply+"/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+secret)
		response, err := p.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		time.Sleep(5 * time.Second) // less than the model's timeouts in startPiped
		if err := p.keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		text, err := io.ReadAll(response.Body)
		if after := time.Since(from); err != nil || !strings.Contains(string(text), "so far") || after > time.Second {
			t.Errorf("the stream ended after %v with %v:\n%s", after, err, text)
		}
		call.end()
	})
}

func TestRevokedKey_Ticket_Refused(t *testing.T) {
	p := start(t, echo)
	key, secret := p.newKey("acme", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.ReadMessages}})
	ticket := func() string {
		return p.status(t, "ticket", secret, "POST", "/v1/stream/tickets", nil, 200, "").body["ticket"].(string)
	}
	dial := func(ticket string) error {
		s, err := p.tryDial(p.url, websocket.DialOptions{Subprotocols: []string{"parley.v1", "ticket." + ticket}, HTTPHeader: http.Header{}})
		if err == nil {
			_ = s.conn.CloseNow()
		}
		return err
	}
	if err := dial(ticket()); err != nil {
		t.Fatal(err)
	}
	late := ticket()
	if err := p.keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
		t.Fatal(err)
	}
	refused, ok := errors.AsType[*refusal](dial(late))
	if !ok || refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("the ticket of a revoked key got %v, want 401", refused)
	}
}

// brokenKeys is a store of keys. While away is set, the store is unreachable.
type brokenKeys struct {
	auth.Store
	away atomic.Bool
}

func (b *brokenKeys) KeyByHash(ctx context.Context, hash auth.Hash) (auth.KeyMatch, error) {
	if b.away.Load() {
		return auth.KeyMatch{}, errors.New("away")
	}
	return b.Store.KeyByHash(ctx, hash)
}

func TestSocket_KeyStoreUnreachable_StaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &brokenKeys{}
		p := startPiped(t, echo, func(o *server.Options, c *service.Options) {
			broken.Store = c.Store.(conversationtest.BegunFirst).Store.(auth.Store) // the embedded store implements auth.Store too
			o.Keys = auth.NewKeys(broken, auth.Options{AdminKey: adminKey})
		})
		s := p.dialWith(t, p.key("acme", auth.Admin))
		broken.away.Store(true)
		time.Sleep(20 * time.Second)
		s.must(map[string]any{"type": "ping"})
		s.next("pong")
		_ = s.conn.CloseNow()
	})
}
