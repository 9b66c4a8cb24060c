package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/stream"
	"parley/stream/wire"
)

const (
	heartbeat = 25 * time.Second
	// goodbye is how long a client has to answer a close.
	goodbye = 2 * time.Second
	// maxOutbox is how many answers may wait for a client that does not read before no more of its requests are read.
	maxOutbox = 64
	// maxCancels is how many cancels of one socket may be under way.
	maxCancels = 16
	// maxSubscriptions is how many sessions one socket may watch.
	maxSubscriptions = 1000
)

// socket is one connection, of whichever dialect its client chose.
//
// One goroutine reads, in [socket.read]. The writer exists only while there is something to write: [socket.kick]
// starts it, and it ends when all viewers are parked and the outbox is empty; so an idle socket has one goroutine.
// What is written to a slow client is computed when it can be written: there is no queue of events.
type socket struct {
	// static
	server    *Server
	principal auth.Principal
	owner     conversation.Owner
	id        string // of the connection
	requestID string // of the handshake
	dialect   dialect
	conn      *websocket.Conn
	below     net.Conn // what conn runs on
	writer    func()   // socket.write, stored once: a method value would be allocated at each start
	ping      *time.Timer
	ctx       context.Context // ends with the socket; never used for reads and writes
	cancelCtx context.CancelFunc
	cancels   chan struct{} // holds a place for each cancel under way

	// owned by the reader
	nonsense int // invalid frames in a row

	mu            sync.Mutex
	room          sync.Cond                // on mu; when the outbox has room again
	outbox        [][]byte                 // guarded by mu: answers, which go before events
	ready         []*subscription          // guarded by mu: those whose viewer is running
	subscriptions map[string]*subscription // guarded by mu; by session, or what else the dialect has one of
	running       bool                     // guarded by mu: a writer is at work
	closed        bool                     // guarded by mu

	// owned by the ping timer
	missed int // pings in a row without an answer
}

// dialect is what a socket speaks: how it answers the client's frames, and writes events down. Its methods are called with
// no lock held.
type dialect interface {
	// greet says what is to be said first.
	greet(k *socket)
	// handle answers one frame. It reports whether the frame was valid; a valid request may still fail. Only the socket's reader
	// calls it.
	handle(k *socket, frame []byte) bool
	// show writes an event of a subscription; last says that the subscription ends with it. Only the socket's writer calls it.
	show(k *socket, sub *subscription, event stream.Event) (last bool, err error)
	// leave tells the client that the server is going away, if there is a word for that.
	leave(k *socket)
}

// subscription is a session that a socket watches.
type subscription struct {
	// static
	key     string // in socket.subscriptions
	session string
	answers *answers // what it answers in ai-sdk.v7, else nil

	viewer *stream.Viewer // guarded by socket.mu until it is ready; nil until there is something to view
	closed bool           // guarded by socket.mu: nothing of it may be written any more
}

func newSocket(s *Server, p auth.Principal, requestID string, speaks dialect) *socket {
	k := &socket{
		server: s, principal: p, owner: owner(p), id: "conn_" + conversation.RandomText(16), requestID: requestID, dialect: speaks,
		subscriptions: make(map[string]*subscription), cancels: make(chan struct{}, maxCancels),
	}
	k.ctx, k.cancelCtx = context.WithCancel(context.Background())
	k.room.L = &k.mu
	k.writer = k.write
	return k
}

// start runs the socket on an accepted connection, and what that runs on. It returns at once.
func (k *socket) start(conn *websocket.Conn, below net.Conn) {
	k.conn, k.below = conn, below
	s := k.server
	s.mu.Lock()
	var refused wire.CloseCode
	switch {
	case s.draining.Load():
		refused = wire.CloseDraining
	case s.MaxSockets > 0 && len(s.sockets) >= s.MaxSockets:
		refused = wire.CloseTooManyConnections
	}
	if refused == 0 { // one that is refused takes nobody's place while it is closed
		s.sockets[k] = struct{}{}
	}
	s.work.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.work.Done()
		if refused != 0 {
			k.close(refused)
		} else {
			k.serve()
		}
		s.mu.Lock()
		delete(s.sockets, k)
		s.mu.Unlock()
	}()
}

func (k *socket) serve() {
	k.mu.Lock()
	k.ping = time.AfterFunc(heartbeat, k.beat)
	k.mu.Unlock()
	k.dialect.greet(k)
	release := k.server.watchman.watch(k.principal, k.expel)
	k.read()
	release()
	k.shut()
	_ = k.conn.CloseNow()
}

// shut ends the subscriptions and whoever waits for the socket.
func (k *socket) shut() {
	k.cancelCtx()
	k.mu.Lock()
	k.closed = true
	k.ping.Stop()
	k.outbox, k.ready = nil, nil
	subscriptions := k.subscriptions
	k.subscriptions = nil
	for _, sub := range subscriptions {
		sub.closed = true
	}
	k.room.Broadcast()
	k.mu.Unlock()
	for _, sub := range subscriptions {
		if sub.viewer != nil {
			sub.viewer.Close()
		}
	}
}

// close closes the connection with a code; it waits for the client's answer, for goodbye at most. The library would wait 5 s to
// write and 5 s more for the answer, and its CloseNow for that: what it runs on is closed under it.
func (k *socket) close(code wire.CloseCode) {
	late := time.AfterFunc(goodbye, func() { _ = k.below.Close() })
	defer late.Stop()
	_ = k.conn.Close(websocket.StatusCode(code), code.Reason())
}

// expel closes the connection because its key no longer works. It returns at once: a client may take its time to answer the
// close frame, but is shown nothing more, and what it asks for meanwhile is refused (see socket.session). Called while the
// socket is watched, so it still counts in the server's work.
func (k *socket) expel() {
	k.mu.Lock()
	for key := range k.subscriptions {
		k.drop(key)
	}
	k.mu.Unlock()
	k.server.work.Add(1)
	go func() {
		defer k.server.work.Done()
		k.close(wire.CloseUnauthorized)
	}()
}

// beat pings the client, and closes the socket when two pings in a row went unanswered.
func (k *socket) beat() {
	ctx, cancel := context.WithTimeout(context.Background(), heartbeat)
	defer cancel()
	began := time.Now()
	if k.conn.Ping(ctx) == nil {
		k.missed = 0
	} else if k.missed++; k.missed >= 2 {
		k.close(wire.CloseNoHeartbeat)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.ping.Reset(max(0, heartbeat-time.Since(began)))
	}
}

// answer has a frame written that is no event.
func (k *socket) answer(frame any) {
	body, err := json.Marshal(frame)
	if err != nil {
		panic(err) // our own structs
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.outbox = append(k.outbox, body)
		k.kick()
	}
}

// wake has a subscription's events written.
func (k *socket) wake(sub *subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !sub.closed {
		k.ready = append(k.ready, sub)
		k.kick()
	}
}

// kick starts the writer if there is none; called with mu held.
func (k *socket) kick() {
	if !k.running {
		k.running = true
		k.server.work.Add(1)
		go k.writer()
	}
}

// write writes until there is nothing left to write. Writes are not under a context that can end (it would cost more
// than the write): the connection's own deadline bounds them.
func (k *socket) write() {
	defer k.server.work.Done()
	for k.flush() {
		sub, more := k.next()
		if !more {
			return
		}
		if sub == nil {
			continue
		}
		event, ok, err := sub.viewer.Next(k.ctx)
		if errors.Is(err, conversation.ErrUnavailable) { // the store is out of reach: the socket stays
			time.AfterFunc(historyAgain, func() { k.wake(sub) })
			continue
		}
		if err != nil {
			if k.ctx.Err() == nil {
				k.server.Log.Warn("a socket was closed: history cannot be read", "requestId", k.requestID, "error", err)
			}
			k.abandon()
			return
		}
		// What was answered before the event was published must be written before it.
		if ok && (!k.flush() || !k.show(sub, event)) {
			return
		}
	}
}

// next takes the subscription whose turn it is; nil if only answers wait. Without more the writer is over.
func (k *socket) next() (sub *subscription, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.ready) > 0 {
		sub := k.ready[0]
		copy(k.ready, k.ready[1:])
		k.ready = k.ready[:len(k.ready)-1]
		if !sub.closed {
			return sub, true
		}
	}
	k.running = len(k.outbox) > 0
	return nil, k.running
}

// show writes an event and puts its subscription at the end of those that are ready. It reports whether the
// connection still stands.
func (k *socket) show(sub *subscription, event stream.Event) bool {
	k.mu.Lock()
	closed := sub.closed
	k.mu.Unlock()
	if closed {
		return true
	}
	last, err := k.dialect.show(k, sub, event)
	if err != nil {
		k.abandon()
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case sub.closed:
	case last:
		k.drop(sub.key)
	default:
		k.ready = append(k.ready, sub)
	}
	return true
}

// drop ends the subscription of that key, if there is one; called with mu held.
func (k *socket) drop(key string) {
	if sub := k.subscriptions[key]; sub != nil {
		sub.closed = true
		delete(k.subscriptions, key)
		if sub.viewer != nil {
			sub.viewer.Close()
		}
	}
}

// flush writes the answers that wait. It reports whether the connection still stands.
func (k *socket) flush() bool {
	for {
		k.mu.Lock()
		frames := k.outbox
		k.outbox = nil
		k.room.Broadcast()
		k.mu.Unlock()
		if len(frames) == 0 {
			return true
		}
		for _, frame := range frames {
			if k.conn.Write(context.Background(), websocket.MessageText, frame) != nil {
				k.abandon()
				return false
			}
		}
	}
}

// abandon ends a connection that cannot be written to. The reader sees it, also where it waits for room, and clears up.
func (k *socket) abandon() {
	k.mu.Lock()
	k.closed = true
	k.room.Broadcast()
	k.mu.Unlock()
	_ = k.conn.CloseNow()
}

// idle reports whether nothing is being written, and nothing that is watched is live.
func (k *socket) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running {
		return false
	}
	for _, sub := range k.subscriptions {
		if k.server.Conversation.IsLive(sub.session) {
			return false
		}
	}
	return true
}
