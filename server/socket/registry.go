package socket

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/stream"
	"parley/stream/wire"
)

// Conversation is the part of the conversation service that sockets use.
type Conversation interface {
	// TakeSlot admits a send to this node. It returns an error that wraps conversation.ErrUnavailable if too many sends are in
	// flight. key is the send's idempotency key; nil for none.
	TakeSlot(owner conversation.Owner, session string, key *string) (*turn.Slot, error)
	// Begin begins a turn, or queues it while its session is busy. The channel gets one result: at once, unless the send is
	// queued. Viewers see nothing of the turn before its sender calls [turn.Sent.Start].
	Begin(ctx context.Context, slot *turn.Slot, m conversation.NewMessage) <-chan turn.Result
	// Cancel cancels a reply. It returns the reply after it has stopped.
	Cancel(ctx context.Context, owner conversation.Owner, session, message string) (conversation.Message, error)
	// View subscribes to a session after a position or, if from is nil, from now on. The viewer calls wake when it has events
	// again after it had none. recovered is false if the position no longer exists.
	View(ctx context.Context, owner conversation.Owner, session string, from *stream.Position, wake func()) (
		viewer *stream.Viewer, at stream.Position, recovered bool, err error)
	// CheckPosition returns [conversation.ErrNoPosition] if the session never had the position.
	CheckPosition(ctx context.Context, owner conversation.Owner, session string, p stream.Position) error
	Session(ctx context.Context, owner conversation.Owner, session string) (conversation.Session, stream.Position, error)
	Message(ctx context.Context, owner conversation.Owner, session, message string) (conversation.Message, stream.Position, error)
	// IsLive reports whether this process is generating a reply of the session.
	IsLive(session string) bool
}

// Keys is the part of package auth that sockets use.
type Keys interface {
	// Revalidate returns [auth.ErrInvalidToken] if the principal's key does not work any more.
	Revalidate(ctx context.Context, p auth.Principal) error
}

// Audit records events for auditors.
type Audit interface {
	// SocketClosed records that the server closed a socket because of the client or its key. cause is one of [Causes].
	SocketClosed(h Handshake, cause string)
	// QuotaRefused records that a quota refused a request.
	QuotaRefused(p auth.Principal, refused *auth.QuotaError)
}

// Unavailable records errors with the status 503.
type Unavailable interface {
	// Record records an error with its cause, one of api.Causes. fault is set if the server or its store is at fault. request holds
	// attributes for the log, as names and values.
	Record(cause string, err error, fault bool, request ...any)
}

// Options configure a Registry.
type Options struct {
	Conversation Conversation
	Keys         Keys
	// Admission returns a new admission of a principal. A send on a socket counts as a request, so it needs one.
	Admission func(auth.Principal) *auth.Admission
	// Frames counts the frames that clients send.
	Frames     *auth.Frames
	Revocation *RevocationMonitor
	// MaxSockets is the maximum number of open sockets of all accounts; 0 means no limit.
	MaxSockets  int
	Audit       Audit
	Unavailable Unavailable
	Log         *slog.Logger
}

// Registry holds the open sockets of a server. Its methods may be called from any goroutine.
type Registry struct {
	Options // static

	mu       sync.Mutex
	open     map[*connection]struct{} // guarded by mu
	draining bool                     // guarded by mu

	work sync.WaitGroup // the goroutines of all sockets
}

// NewRegistry returns a registry without sockets.
func NewRegistry(options Options) *Registry {
	return &Registry{Options: options, open: make(map[*connection]struct{})}
}

// Handshake is a request that becomes a socket. It must have passed [CheckHandshake].
type Handshake struct {
	Principal auth.Principal
	RequestID string
	Closed    func() // called once: when the socket has closed, or when the upgrade has failed
}

// Upgrade upgrades a request to a socket. Upgrade returns after the response was sent. The socket runs in its own goroutines,
// so that the stack and the buffers of the HTTP handler are released.
func (r *Registry) Upgrade(w http.ResponseWriter, request *http.Request, h Handshake) {
	hijacked := &hijacker{ResponseWriter: w}
	var c *connection
	ws, err := websocket.Accept(hijacked, request, &websocket.AcceptOptions{
		Subprotocols:       protocols,
		InsecureSkipVerify: true, // CheckHandshake has checked the origin
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived:     func(context.Context, []byte) bool { return c.pinged() },
		OnPongReceived:     func(context.Context, []byte) { c.pinged() },
	})
	if err != nil {
		r.Log.Debug("handshake failed", "requestId", h.RequestID, "error", err)
		h.Closed()
		return // Accept has responded
	}
	ws.SetReadLimit(wire.MaxFrame)
	var speaks dialect = parleyV1{} // the default if the client offers no subprotocol
	if ws.Subprotocol() == wire.AISDKProtocol {
		speaks = new(aiSDK)
	}
	c = newConnection(r, h, speaks)
	c.start(ws, hijacked.conn)
}

// add registers a connection and returns 0. If it refuses the connection, it returns the close code instead. A refused
// connection does not count towards MaxSockets, even while it is being closed.
func (r *Registry) add(c *connection) (refused wire.CloseCode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work.Add(1)
	switch {
	case r.draining:
		return wire.CloseDraining
	case r.MaxSockets > 0 && len(r.open) >= r.MaxSockets:
		return wire.CloseTooManyConnections
	}
	r.open[c] = struct{}{}
	return 0
}

func (r *Registry) remove(c *connection) {
	r.mu.Lock()
	delete(r.open, c)
	r.mu.Unlock()
	c.Closed()
	r.work.Done()
}

// Open returns the number of open sockets.
func (r *Registry) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

func (r *Registry) connections() []*connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*connection, 0, len(r.open))
	for c := range r.open {
		all = append(all, c)
	}
	return all
}

const (
	// reconnectAfter is the delay before a client should reconnect; the draining frame holds it. Meanwhile a load balancer can
	// see that /readyz fails. A handshake that still comes to this server gets 503, and the client tries again.
	reconnectAfter = 500 * time.Millisecond
	// drainInterval is the interval at which Drain looks for idle sockets to close.
	drainInterval = 50 * time.Millisecond
)

// BeginDrain makes the registry close each new socket with 1012.
func (r *Registry) BeginDrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Drain announces the drain to every socket whose dialect has a frame for it. It closes each socket with 1012 as soon as none
// of the socket's subscribed sessions has a live reply here. When ctx is done, it closes all remaining sockets. It returns
// when no socket is left, at the latest about closeTimeout (2 s) after ctx is done. Call BeginDrain first.
func (r *Registry) Drain(ctx context.Context) {
	for _, c := range r.connections() {
		c.dialect.announceDrain(c)
	}
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	closing := make(map[*connection]bool)
	for {
		overdue := ctx.Err() != nil
		left := r.connections()
		for _, c := range left {
			if !closing[c] && (overdue || c.idle()) {
				closing[c] = true
				go c.close(wire.CloseDraining) // in parallel, because each may take closeTimeout
			}
		}
		if len(left) == 0 {
			break
		}
		if overdue {
			<-tick.C
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	r.work.Wait()
}
