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

// Conversation is what sockets need of the conversation engine.
type Conversation interface {
	// Begin begins a turn, or queues it while its session is busy. The channel gets one result: at once, unless the send is queued.
	// Nothing of the turn is shown to viewers before its sender calls Start.
	Begin(ctx context.Context, owner conversation.Owner, m conversation.NewMessage) <-chan turn.Result
	// Cancel returns the reply when it has stopped.
	Cancel(ctx context.Context, owner conversation.Owner, session, message string) (conversation.Message, error)
	// View subscribes to a session after a position, nil for from now on. It calls wake when the viewer has events again
	// after it had none. recovered is false if the position no longer exists.
	View(ctx context.Context, owner conversation.Owner, session string, from *stream.Position, wake func()) (
		viewer *stream.Viewer, at stream.Position, recovered bool, err error)
	// CheckPosition returns [conversation.ErrNoPosition] for a position that the session never had.
	CheckPosition(ctx context.Context, owner conversation.Owner, session string, p stream.Position) error
	Session(ctx context.Context, owner conversation.Owner, session string) (conversation.Session, stream.Position, error)
	Message(ctx context.Context, owner conversation.Owner, session, message string) (conversation.Message, stream.Position, error)
	// IsLive reports whether this process is generating a reply of the session.
	IsLive(session string) bool
}

// Keys is what sockets need of package auth.
type Keys interface {
	// Revalidate returns [auth.ErrInvalidToken] if the principal's key does not work any more.
	Revalidate(ctx context.Context, p auth.Principal) error
}

// Options configure a Registry.
type Options struct {
	Conversation Conversation
	Keys         Keys
	// Admission returns the limits that a send counts against: over a socket it is a request like any other.
	Admission  func(auth.Principal) *auth.Admission
	Revocation *RevocationMonitor
	// MaxSockets is how many sockets may be open at once; 0 is no limit.
	MaxSockets int
	Log        *slog.Logger
}

// Registry has the open sockets of a server. Its methods may be called from any goroutine.
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

// Upgrade makes a request a socket of the principal. The request must have passed [CheckHandshake]. Upgrade returns when
// the response was sent; the socket then runs in goroutines of its own, so the stack and buffers of the HTTP handler are
// free again.
func (r *Registry) Upgrade(w http.ResponseWriter, request *http.Request, p auth.Principal, requestID string) {
	hijacked := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(hijacked, request, &websocket.AcceptOptions{
		Subprotocols:       protocols,
		InsecureSkipVerify: true, // CheckHandshake has checked the origin, with an error of our own
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		r.Log.Debug("handshake failed", "requestId", requestID, "error", err)
		return // Accept has responded
	}
	ws.SetReadLimit(wire.MaxFrame)
	var speaks dialect = parleyV1{} // the default if the client offers no subprotocol
	if ws.Subprotocol() == wire.AISDKProtocol {
		speaks = new(aiSDK)
	}
	newConnection(r, p, requestID, speaks).start(ws, hijacked.conn)
}

// add registers a connection, or returns the code to close it with. A connection that is refused takes no place, not even
// while it is being closed.
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
	r.work.Done()
}

// Open returns how many sockets are open.
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
	// reconnectAfter is what the draining frame tells clients to wait: by then a load balancer has seen /readyz fail.
	reconnectAfter = 500 * time.Millisecond
	// drainInterval is how often Drain looks for sockets that can be closed.
	drainInterval = 50 * time.Millisecond
)

// BeginDrain refuses new sockets.
func (r *Registry) BeginDrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// Drain announces to every socket that the server is going away (if its dialect has a frame for that), and closes each
// one with 1012 when no session that it views has a live reply. When ctx is done it closes all that are left. It returns
// when no socket is left, at most closeTimeout (2 s) after ctx is done. Call BeginDrain before.
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
