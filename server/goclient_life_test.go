package server_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
	"parley/conversation/service"
	"parley/server"
	"parley/stream"
	"parley/stream/client"
)

// pulled is an iteration that the test advances event by event, so that the test can act between two events.
type pulled struct {
	t    testing.TB
	next func() (client.Event, error, bool)
}

func pull(t testing.TB, events iter.Seq2[client.Event, error]) pulled {
	next, stop := iter.Pull2(events)
	t.Cleanup(stop)
	return pulled{t, next}
}

// want returns the next event. An event of a type other than kind ends the test.
func (p pulled) want(kind string) client.Event {
	p.t.Helper()
	e, err, ok := p.next()
	if err != nil || !ok || e.Type != kind {
		p.t.Fatalf("got %+v, %v, %v, want %s", e, err, ok, kind)
	}
	return e
}

// wantAfterDeltas is like want, but skips deltas.
func (p pulled) wantAfterDeltas(kind string) client.Event {
	p.t.Helper()
	for {
		e, err, ok := p.next()
		if err == nil && ok && e.Type == client.Delta {
			continue
		}
		if err != nil || !ok || e.Type != kind {
			p.t.Fatalf("got %+v, %v, %v, want %s", e, err, ok, kind)
		}
		return e
	}
}

// wantError returns the error that the iteration yields next. The iteration must end after the error.
func (p pulled) wantError() error {
	p.t.Helper()
	e, err, ok := p.next()
	if err == nil || !ok {
		p.t.Fatalf("got %+v, %v, want an error", e, ok)
	}
	if e, _, ok := p.next(); ok {
		p.t.Fatalf("the iteration went on after its error, with %+v", e)
	}
	return err
}

func errorCode(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestGoClient_TenSends_ShareOneSocket(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	c, s := p.goClient(t)
	for range 10 {
		for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: "hello", Metadata: map[string]any{"a": 1}, Role: "system"}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == client.Delta {
				break // the next send must not yield the events that remain
			}
		}
	}
	if h := p.history(session); s.dials.Load() != 1 || len(h) != 20 || h[0].Role != "system" || h[0].Metadata["a"] != 1.0 {
		t.Errorf("%d dials, %d messages", s.dials.Load(), len(h))
	}
}

func TestGoClient_IdleSocketClosed_DialsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		session := p.session()
		c, s := p.goClient(t)
		var last net.Conn
		s.dial = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			conn, err = p.dialNet(ctx, network, address)
			last = conn
			return conn, err
		}
		for i, wait := range []time.Duration{0, 10 * time.Second, time.Minute} {
			time.Sleep(wait) // takes no real time, because the bubble's clock jumps
			if i == 1 {
				_ = last.Close()
			}
			r := &eventCollector{t: t}
			began := time.Now()
			for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: "hello"}) {
				if err != nil {
					t.Fatal(err)
				}
				r.take(e)
			}
			if len(r.texts) != 1 || time.Since(began) > 0 || int(s.dials.Load()) != i+1 {
				t.Errorf("after %v: %q, took %v, %d dials", wait, r.texts, time.Since(began), s.dials.Load())
			}
		}
	})
}

func TestGoClient_CallerLeavesIteration_ReplyGoesOn(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	for name, leave := range map[string]func(c *client.Client, cancel context.CancelFunc) (code string, cause error){
		"context_cancelled": func(_ *client.Client, cancel context.CancelFunc) (string, error) {
			cancel()
			return "", context.Canceled
		},
		"client_closed": func(c *client.Client, _ context.CancelFunc) (string, error) { c.Close(); return "closed", nil },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := p.goClient(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			reply := pull(t, c.Send(ctx, session, client.NewMessage{Content: "hello"}))
			id := reply.want(client.Created).MessageID
			model := model.next(t)
			model.say("Half of ")
			if e := reply.want(client.Delta); e.Delta != "Half of " || e.Offset != 0 {
				t.Errorf("%+v", e)
			}
			code, cause := leave(c, cancel)
			if err := reply.wantError(); errorCode(err) != code || cause != nil && !errors.Is(err, cause) {
				t.Errorf("%v", err)
			}
			model.say("a reply")
			other, _ := p.goClient(t)
			m, err := other.Cancel(t.Context(), session, id)
			if err != nil || m.Status != "cancelled" || m.Content != "Half of a reply" || m.MessageID != id || m.CreatedAt.IsZero() {
				t.Errorf("%+v, %v", m, err)
			}
			if again, err := other.Cancel(t.Context(), session, id); err != nil || again.Content != m.Content {
				t.Errorf("repeated: %+v, %v", again, err)
			}
		})
	}
}

func TestGoClient_SlowCaller_FewerLargerDeltas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, reciter(100*time.Millisecond))
		session := p.session()
		c, s := p.goClient(t)
		text := verse(rand.New(rand.NewPCG(7, 8)), 1200) // 120 s at 100 ms a word
		r, deltas := &eventCollector{t: t}, 0
		for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: text}) {
			if err != nil {
				t.Fatal(err)
			}
			if r.take(e); e.Type == client.Delta {
				deltas++
				time.Sleep([]time.Duration{time.Second, 40 * time.Second}[deltas%2]) // the server drops a client after 30 s without progress
			}
		}
		if len(r.texts) != 1 || r.texts[0] != text || deltas > 40 || s.dials.Load() < 2 {
			t.Errorf("%d texts in %d deltas over %d sockets", len(r.texts), deltas, s.dials.Load())
		}
	})
}

func TestGoClient_TicketOption_NewTicketPerSocket(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	asked := 0
	tickets := func(o *client.Options) {
		o.Key = ""
		o.Ticket = func(context.Context) (string, error) { asked++; return p.ticket(map[string]any{}), nil }
	}
	c, s := p.goClient(t, tickets)
	s.after = func() int { return max(0, 2-asked) * 1200 } // only the first socket is cut
	reply := pull(t, c.Send(t.Context(), session, client.NewMessage{Content: "hello"}))
	id := reply.want(client.Created).MessageID
	call := model.next(t)
	call.say(strings.Repeat("so many words ", 200))
	reply.want(client.Delta) // the text takes several deltas
	m, err := c.Cancel(t.Context(), session, id)
	if err != nil || m.Status != "cancelled" || asked != 3 {
		t.Errorf("%+v, %v, %d tickets", m, err, asked)
	}
	if e := reply.wantAfterDeltas(client.End); e.Message.Status != "cancelled" {
		t.Errorf("%+v", e)
	}
	if err := c.Do(t.Context(), "GET", "/sessions", nil, nil); errorCode(err) != "no_key" {
		t.Errorf("%v", err)
	}
	refused := &client.Error{Code: "forbidden", Status: 403}
	none, _ := p.goClient(t, func(o *client.Options) {
		o.Ticket = func(context.Context) (string, error) { return "", refused }
	})
	if err := pull(t, none.Watch(t.Context(), session, "")).wantError(); !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
}

func TestGoClient_UnknownCursor_StartsFromNow(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	c, s := p.goClient(t)
	for name, cursor := range map[string]string{"beyond_the_newest_message": p.cursorOf(session, "msg_zzzzzzzzzzzzzzzz", "e"), "malformed": "x"} {
		t.Run(name, func(t *testing.T) {
			watching := pull(t, c.Watch(t.Context(), session, cursor))
			if e := watching.want(client.Cleared); e.Recovered {
				t.Errorf("%+v", e)
			}
			p.begin(session, "hello")
			call := model.next(t)
			call.say("Here")
			call.end()
			if e := watching.want(client.Created); e.Message.Content != "hello" {
				t.Errorf("%+v", e)
			}
			watching.want(client.Created)
			text := ""
			e := watching.want(client.Delta)
			for ; e.Type == client.Delta; e, _, _ = watching.next() {
				text += e.Delta
			}
			if e.Type != client.End || e.Message.Content != "Here" || text != "Here" {
				t.Errorf("%q, %+v", text, e)
			}
		})
	}
	if s.dials.Load() > 2 {
		t.Errorf("%d dials", s.dials.Load())
	}
}

func TestGoClient_DeleteClearOrDrain(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	for name, test := range map[string]struct {
		act  func(session string)
		code string // code of the error; "" if the iteration goes on
		seen string // type of the event that Watch yields
	}{
		"error_session_deleted":  {func(s string) { p.must("DELETE", "/v1/sessions/"+s, nil) }, "session_deleted", client.Deleted},
		"error_session_cleared":  {func(s string) { p.must("DELETE", messages(s), nil) }, "session_cleared", client.Cleared},
		"reply_goes_on_in_drain": {func(s string) { p.handler.DrainSockets(cancelledContext()) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			session := p.session()
			c, _ := p.goClient(t)
			start := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
			watching := pull(t, c.Watch(t.Context(), session, start))
			reply := pull(t, c.Send(t.Context(), session, client.NewMessage{Content: "hello"}))
			reply.want(client.Created)
			watching.want(client.Created)
			watching.want(client.Created)
			call := model.next(t)
			test.act(session)
			if test.code == "" { // a drain must not end the iteration
				call.say("Here")
				call.end()
				reply.want(client.Delta)
				reply.want(client.End)
				return
			}
			if err := reply.wantError(); errorCode(err) != test.code {
				t.Errorf("%v", err)
			}
			watching.want(test.seen)
			if test.seen == client.Deleted {
				if e, err, ok := watching.next(); ok {
					t.Errorf("watching a deleted session returned %+v, %v", e, err)
				}
			}
		})
	}
}

// cancelledContext returns a cancelled context.
func cancelledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestGoClient_RevokedKey_IterationEndsWith401(t *testing.T) {
	t.Parallel()
	p := start(t, echo)
	session := p.session()
	key, secret := p.newKey("default", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.ReadMessages}})
	c, s := p.goClient(t, withKey(secret))
	start := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
	watching := pull(t, c.Watch(t.Context(), session, start))
	p.send(session, "hello")
	watching.want(client.Created)
	p.must("DELETE", "/v1/keys/"+key.ID, nil)
	for {
		_, err, ok := watching.next()
		if err == nil && ok {
			continue // an event from before the revocation
		}
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != "invalid_token" || e.Status != 401 || s.dials.Load() != 1 {
			t.Errorf("%v", err)
		}
		return
	}
}

func TestGoClient_ServerUnreachable_FiveDialsThenError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo)
		session := p.session()
		c, s := p.goClient(t)
		s.after = func() int { return 1 }
		began := time.Now()
		err := pull(t, c.Watch(t.Context(), session, "")).wantError()
		if errorCode(err) != "connection_lost" || errors.Unwrap(err) == nil || s.dials.Load() != 5 || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v and %d dials", err, time.Since(began), s.dials.Load())
		}
	})
}

// silentConn is a connection that delivers a number of bytes (left) and then nothing, not even an error. A phone that loses its
// network has such a connection.
type silentConn struct {
	net.Conn
	left   int
	closed chan struct{}
	once   sync.Once
}

func (c *silentConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestGoClient_SocketFallsSilent_DialsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, reciter(2*time.Minute), func(_ *server.Options, o *service.Options) {
			o.Timeouts = stream.Timeouts{FirstByte: time.Hour, Stall: time.Hour}
		})
		session := p.session()
		c, s := p.goClient(t)
		s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := p.dialNet(ctx, network, address)
			if err != nil || s.dials.Load() > 1 {
				return conn, err
			}
			return &silentConn{Conn: conn, left: 2000, closed: make(chan struct{})}, nil
		}
		r := &eventCollector{t: t}
		for e, err := range c.Send(t.Context(), session, client.NewMessage{Content: "one two three"}) {
			if err != nil {
				t.Fatal(err)
			}
			r.take(e)
		}
		if len(r.texts) != 1 || s.dials.Load() != 2 {
			t.Errorf("%q over %d sockets", r.texts, s.dials.Load())
		}
	})
}
