package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"parley/cmd/chaos/history"
	wsclient "parley/stream/client"
)

// desk is a session that several clients use, so that their sends queue. It changes to a new session after some turns.
type desk struct {
	mu    sync.Mutex
	id    string // guarded by mu; "" before the first session
	turns int    // guarded by mu
}

// turnsOfSession is the number of turns after which a desk begins a new session, because the prompt contains the whole history.
const turnsOfSession = 25

// client is one user of the service. It sends messages one after the other, over REST and the WebSocket, and reads the replies.
type client struct {
	w      *world
	name   string // part of each message
	random *rand.Rand
	desk   *desk
	ws     *wsclient.Client
	sent   int
}

// run sends messages, reads replies and pages, and deletes sessions at random until the load ends.
func (c *client) run() {
	for !c.w.over() {
		switch n := c.random.IntN(100); {
		case n < 30:
			c.whole()
		case n < 60:
			c.streamed()
		case n < 85:
			c.socket()
		case n < 95:
			c.page()
		default:
			c.removal()
		}
		c.w.pause(time.Duration(c.random.IntN(200)) * time.Millisecond)
	}
}

// session returns the current session of the desk, and creates one if needed. It returns "" after the end of the load.
func (c *client) session() string {
	d := c.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turns++; d.id == "" || d.turns > turnsOfSession {
		if id := c.w.createSession(); id != "" {
			d.id, d.turns = id, 1
			c.w.watch(id)
		} else {
			return ""
		}
	}
	return d.id
}

// lost makes the desk begin a new session, because the server says that the session does not exist.
func (c *client) lost(session string) {
	c.desk.mu.Lock()
	defer c.desk.mu.Unlock()
	if c.desk.id == session {
		c.desk.id = ""
	}
}

// message returns a new message. Most replies are short. Some take seconds, so that faults happen during live replies.
func (c *client) message() string {
	c.sent++
	words := 3 + c.random.IntN(30)
	if c.random.IntN(4) == 0 {
		words = 60 + c.random.IntN(120)
	}
	return fmt.Sprintf("%s-%d say %d%s", c.name, c.sent, words, c.w.lie(c.random))
}

// post sends a message over REST until the send is confirmed. It returns false if the load ended before, or if the session is
// gone.
func (c *client) post(s *history.Send, streaming bool) bool {
	key := fmt.Sprintf("key-%s-%d", c.name, c.sent)
	body := map[string]any{"content": s.Content, "streaming": streaming}
	for {
		a := c.w.api.call("POST", "/v1/sessions/"+s.Session+"/messages", body, key, queued)
		switch a.status {
		case 200:
			s.Confirmed, s.Reply = time.Now(), a.MessageID
			if a.Status != "streaming" {
				m := a.message()
				s.Whole = &m
				c.w.record.end(s.Content)
			}
			return true
		case 502, 504: // the model failed: the reply is stored
			s.Confirmed, s.Reply = time.Now(), a.Error.MessageID
			c.w.record.end(s.Content)
			return true
		case 404:
			c.lost(s.Session)
			return false
		}
		if c.w.over() {
			return false
		}
		c.w.pause(time.Duration(100+c.random.IntN(300)) * time.Millisecond)
	}
}

// whole sends a message and waits for the whole reply.
func (c *client) whole() {
	s := history.Send{Session: c.session(), Content: c.message(), Begun: time.Now()}
	if s.Session == "" {
		return
	}
	c.post(&s, false)
	c.w.record.send(s)
}

// streamed sends a message and reads the reply as server-sent events.
func (c *client) streamed() {
	s := history.Send{Session: c.session(), Content: c.message(), Begun: time.Now()}
	if s.Session == "" {
		return
	}
	if c.post(&s, true) && s.Reply != "" {
		c.view(s)
	}
	c.w.record.send(s)
}

// viewing is the deadline for the end of a reply that a viewer reads. A reply takes a few seconds, and an outage some more.
const viewing = 60 * time.Second

// view reads a reply to its end. It breaks the connection at random and resumes, mostly on another node.
func (c *client) view(s history.Send) {
	v := history.View{Viewer: c.name + " (SSE)", Session: s.Session, Reply: s.Reply}
	path, cursor, over := "/v1/sessions/"+s.Session+"/messages/"+s.Reply, "", false
	begun := time.Now()
	for !over && time.Since(begun) < viewing && c.w.patience.Err() == nil {
		ctx, cancel := context.WithTimeout(c.w.patience, viewing-time.Since(begun))
		events := 1 + c.random.IntN(20)
		err := c.w.api.stream(ctx, path, cursor, func(e event) bool {
			cursor = e.id
			switch {
			case e.kind == "message.delta":
				v.Pieces = append(v.Pieces, history.Piece{Offset: e.Offset, Text: e.Delta, At: time.Now()})
			case e.kind == "message.created":
			case strings.HasPrefix(e.kind, "message."):
				v.Ends = append(v.Ends, e.Message.message())
				c.w.record.end(s.Content)
				over = true
			default: // the session is gone
				over = true
			}
			events--
			return !over && events > 0
		})
		cancel()
		if errors.Is(err, errGone) {
			c.lost(s.Session)
			over = true
		} else if err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	q := history.Request{What: "reading reply " + s.Reply, Begun: begun, Took: time.Since(begun), Deadline: viewing - time.Second}
	c.w.record.request(q)
	c.w.record.view(v)
}

// socket sends a message over a WebSocket and reads the reply there. If the client gives up, it repeats the send.
func (c *client) socket() {
	s := history.Send{Session: c.session(), Content: c.message(), Begun: time.Now()}
	if s.Session == "" {
		return
	}
	m := wsclient.NewMessage{Content: s.Content, IdempotencyKey: fmt.Sprintf("key-%s-%d", c.name, c.sent)}
	for c.iterate(&s, m) && !c.w.over() {
		c.w.pause(time.Duration(100+c.random.IntN(300)) * time.Millisecond)
	}
	c.w.record.send(s)
}

// iterate iterates over the events of a send. It returns true if the send must be repeated.
func (c *client) iterate(s *history.Send, m wsclient.NewMessage) (again bool) {
	ctx, cancel := context.WithTimeout(c.w.patience, queued+viewing)
	defer cancel()
	v := history.View{Viewer: c.name + " (WebSocket)", Session: s.Session, Late: true}
	begun := time.Now()
	q := history.Request{What: "send over a WebSocket", Deadline: queued + viewing - time.Second}
	for e, err := range c.ws.Send(ctx, s.Session, m) {
		if err != nil {
			again = c.failed(s.Session, err, &q)
			break
		}
		if s.Confirmed.IsZero() {
			s.Confirmed, s.Reply = time.Now(), e.MessageID
		}
		if v.Reply = e.MessageID; e.Type == wsclient.Created {
			v.Late = false
		}
		collect(&v, e)
	}
	q.Took = time.Since(begun)
	c.w.record.request(q)
	if v.Reply != "" {
		c.w.record.view(v)
	}
	return again
}

// failed records the error of an iteration. It returns true if the client should try again.
func (c *client) failed(session string, err error, q *history.Request) bool {
	var e *wsclient.Error
	if !errors.As(err, &e) {
		return true // the context ended: Took exceeds the deadline
	}
	switch {
	case e.Code == "connection_lost":
		return true
	case e.Status == 404 || e.Code == "session_cleared":
		c.lost(session)
	}
	q.Status, q.Code, q.RetryAfter = e.Status, e.Code, e.RetryAfter > 0
	return e.Status == 503 || e.Status == 409
}

// collect adds an event to a view.
func collect(v *history.View, e wsclient.Event) {
	switch e.Type {
	case wsclient.Delta:
		v.Pieces = append(v.Pieces, history.Piece{Offset: e.Offset, Text: e.Delta, At: time.Now()})
	case wsclient.End:
		v.Ends = append(v.Ends, messageOf(e.Message))
	}
}

func messageOf(m *wsclient.Message) history.Message {
	out := history.Message{ID: m.MessageID, Role: m.Role, Status: m.Status, Content: m.Content, FinishReason: m.FinishReason}
	if m.Usage != nil {
		out.Usage = m.Usage.Total
	}
	return out
}

// page reads the history of the session in small pages.
func (c *client) page() {
	if session := c.session(); session != "" {
		c.w.pages(session, 3+c.random.IntN(20), false)
	}
}

// removal deletes a session in the middle of a reply, and then tries to read it.
func (c *client) removal() {
	s := history.Send{Session: c.w.createSession(), Content: c.message(), Begun: time.Now()}
	if s.Session == "" {
		return
	}
	c.post(&s, true)
	c.w.record.send(s)
	for {
		// The status is 404 if an earlier, unconfirmed request deleted the session.
		a := c.w.api.call("DELETE", "/v1/sessions/"+s.Session, nil, "", soon, 404)
		if a.status == 200 || a.status == 404 {
			break
		}
		if c.w.over() {
			return
		}
		c.w.pause(200 * time.Millisecond)
	}
	c.w.record.removed(s.Session)
	c.w.pages(s.Session, 10, true)
}
