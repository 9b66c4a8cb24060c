package socket

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/server/api"
	"parley/stream"
	"parley/stream/wire"
)

const (
	// pingInterval is the interval of the server's pings: shorter than the 30 to 60 s after which proxies and mobile
	// networks drop idle connections. Two pings in a row without a pong close the socket.
	pingInterval = 25 * time.Second
	// closeTimeout is the time that a client has to answer a close frame. It limits how long a silent client delays a drain.
	closeTimeout = 2 * time.Second
	// maxOutbox is the number of waiting responses at which the reader stops. It bounds the memory for a client that sends
	// requests but reads no responses.
	maxOutbox = 64
	// maxCancels is the maximum number of cancels of one socket that run at once. Each cancel holds a goroutine until its
	// reply has stopped.
	maxCancels = 16
	// maxSubscriptions is the maximum number of subscribed sessions, or of requests of the AI SDK, on one socket.
	maxSubscriptions = 1000
	// storeTimeout is the time that the reader waits for the store before it sends an error.
	storeTimeout = 10 * time.Second
	// HistoryRetry is the delay before a viewer reads history again if the store is unreachable.
	HistoryRetry = time.Second
)

// connection is one socket, of either dialect.
//
//	start ──► serve ──► read … ──► release ──► closed
//	             │                    ▲
//	             └── writer, on demand┘
//
// One goroutine reads (see read). The writer exists only while there is something to write: startWriterLocked starts it, and
// it exits when no viewer is ready and the outbox is empty. So an idle socket has one goroutine. There is no queue of events:
// the writer takes the next event from a viewer only when the previous write is done.
type connection struct {
	// static
	Handshake
	registry  *Registry
	owner     conversation.Owner
	id        string // of the connection
	dialect   dialect
	ws        *websocket.Conn
	transport *boundedConn // the network connection of ws
	writer    func()       // c.write; stored here, because each use of c.write as a value allocates
	unwatch   func()       // ends the watch of the key; set by serve
	pingTimer *time.Timer
	frames    *auth.SocketFrames
	ctx       context.Context // done when the connection has ended; not used for reads and writes
	cancelCtx context.CancelFunc
	cancels   chan struct{} // holds an element for each running cancel
	recorded  sync.Once     // runs when recordClose records the cause

	// owned by the reader
	invalidFrames int         // number of invalid frames in a row
	overdue       *time.Timer // closes the connection if a message is not complete in time; nil until the first message

	mu            sync.Mutex
	outboxSpace   sync.Cond                // uses mu; signals that the outbox was emptied or the connection closed
	outbox        [][]byte                 // guarded by mu: responses, which are written before events
	ready         []*subscription          // guarded by mu: subscriptions whose viewer may have events
	subscriptions map[string]*subscription // guarded by mu; by subscription.key
	writing       bool                     // guarded by mu: the writer is running
	closed        bool                     // guarded by mu

	// owned by the ping timer
	missedPings int // number of pings in a row without a pong
}

// dialect is the protocol that a client and the server speak over a socket. Its methods are called without locks held.
type dialect interface {
	// greet queues the first frame, if the dialect has one.
	greet(c *connection)
	// handle handles one frame from the client. It reports whether the frame was valid; a valid request may still fail.
	// Only the reader calls it.
	handle(c *connection, frame []byte) (valid bool)
	// refuse responds with err to a frame of any type, because a limit refuses the frame.
	refuse(c *connection, frame []byte, err error)
	// writeEvent writes an event of a subscription. last reports whether this is the last event of the subscription. Only the
	// writer calls it.
	writeEvent(c *connection, sub *subscription, event stream.Event) (last bool, err error)
	// announceDrain queues a frame about the drain, if the dialect has one.
	announceDrain(c *connection)
}

// subscription is a view of a session (in parley.v1) or of one reply (in ai-sdk.v7) on a socket.
type subscription struct {
	// static
	key     string // in connection.subscriptions: the session, or the requestId in ai-sdk.v7
	session string
	request *sdkRequest // in ai-sdk.v7, the request that gets the events; else nil

	viewer *stream.Viewer // guarded by connection.mu until the subscription is ready; nil while there is nothing to view
	closed bool           // guarded by connection.mu: no more events may be written
}

func newConnection(r *Registry, h Handshake, speaks dialect) *connection {
	c := &connection{
		Handshake: h, registry: r, owner: api.Owner(h.Principal), id: "conn_" + conversation.RandomText(16), dialect: speaks,
		subscriptions: make(map[string]*subscription), cancels: make(chan struct{}, maxCancels),
	}
	c.ctx, c.cancelCtx = context.WithCancel(context.Background())
	c.outboxSpace.L = &c.mu
	c.writer = c.write
	return c
}

// start runs the connection in a goroutine of its own.
func (c *connection) start(ws *websocket.Conn, transport *boundedConn) {
	c.ws, c.transport, c.frames = ws, transport, c.registry.Frames.Open(c.Principal)
	refused := c.registry.add(c)
	go func() {
		if refused != 0 {
			c.close(refused)
			c.end()
			return
		}
		c.serve()
	}()
}

// serve greets the client and starts the reader.
func (c *connection) serve() {
	c.mu.Lock()
	c.pingTimer = time.AfterFunc(pingInterval, c.ping)
	c.mu.Unlock()
	c.dialect.greet(c)
	c.unwatch = c.registry.Revocation.Watch(c.Principal, c.closeRevoked)
	go c.read()
}

// end removes the connection from the registry. It is the last call of the connection's goroutine.
func (c *connection) end() {
	c.frames.Close()
	c.registry.remove(c)
}

// release ends the subscriptions and wakes the goroutines that wait for the connection.
func (c *connection) release() {
	c.cancelCtx()
	c.mu.Lock()
	c.closed = true
	c.pingTimer.Stop()
	c.outbox, c.ready = nil, nil
	subscriptions := c.subscriptions
	c.subscriptions = nil
	for _, sub := range subscriptions {
		sub.closed = true
	}
	c.outboxSpace.Broadcast()
	c.mu.Unlock()
	for _, sub := range subscriptions {
		if sub.viewer != nil {
			sub.viewer.Close()
		}
	}
}

// close sends a close frame with a code, and waits at most closeTimeout for the client's answer. The library would wait 5 s to
// write and another 5 s for the answer. So close closes the transport after closeTimeout.
func (c *connection) close(code wire.CloseCode) {
	c.recordClose(causes[code])
	overdue := time.AfterFunc(closeTimeout, func() { _ = c.transport.Close() })
	defer overdue.Stop()
	_ = c.ws.Close(websocket.StatusCode(code), code.Reason())
}

// closeRevoked closes the connection because its key no longer works. It does not block, because the client may take up to
// closeTimeout to answer the close frame. Meanwhile the client gets no more events, and checkSession refuses its requests. The
// revocation monitor calls closeRevoked only while it watches the connection. At that time the registry still waits for the
// connection, so closeRevoked may start a goroutine that the registry waits for.
func (c *connection) closeRevoked() {
	c.mu.Lock()
	for key := range c.subscriptions {
		c.unsubscribeLocked(key)
	}
	c.mu.Unlock()
	c.background(func() { c.close(wire.CloseUnauthorized) })
}

// background runs f in a goroutine. Registry.Drain waits for f.
func (c *connection) background(f func()) {
	c.registry.work.Add(1)
	go func() {
		defer c.registry.work.Done()
		f()
	}()
}

// whenBegun calls do with the result of a send. If the send is queued, it calls do later, in another goroutine, so that the
// reader does not wait.
func (c *connection) whenBegun(results <-chan turn.Result, do func(turn.Result)) {
	select {
	case result := <-results:
		do(result)
	default:
		c.background(func() { do(<-results) })
	}
}

// ping pings the client. After two pings in a row without a pong, it closes the socket.
func (c *connection) ping() {
	ctx, cancel := context.WithTimeout(context.Background(), pingInterval)
	defer cancel()
	began := time.Now()
	if c.ws.Ping(ctx) == nil {
		c.missedPings = 0
	} else if c.missedPings++; c.missedPings >= 2 {
		c.close(wire.CloseTimeout)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.pingTimer.Reset(max(0, pingInterval-time.Since(began)))
	}
}

// unsubscribeLocked ends the subscription with that key, if any.
func (c *connection) unsubscribeLocked(key string) {
	if sub := c.subscriptions[key]; sub != nil {
		sub.closed = true
		delete(c.subscriptions, key)
		if sub.viewer != nil {
			sub.viewer.Close()
		}
	}
}

// abort ends a connection after a write or a viewer has failed. The reader then exits, even if it waits for space in the outbox,
// and releases the connection.
func (c *connection) abort() {
	c.mu.Lock()
	c.closed = true
	c.outboxSpace.Broadcast()
	c.mu.Unlock()
	_ = c.ws.CloseNow()
}

// idle reports whether the writer is not running and no subscribed session has a live reply in this process.
func (c *connection) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing {
		return false
	}
	for _, sub := range c.subscriptions {
		if c.registry.Conversation.IsLive(sub.session) {
			return false
		}
	}
	return true
}
