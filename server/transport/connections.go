package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Reasons why a connection is refused.
var (
	ErrFull       = errors.New("the server has too many connections")
	ErrClientFull = errors.New("the client has too many connections")
)

const (
	// maxRefusals is the number of connections that may wait for their 503 at once.
	maxRefusals = 64
	// warnInterval is the shortest time between two log lines about refused connections.
	warnInterval = 10 * time.Second
)

// Options configure Connections.
type Options struct {
	// Max is the maximum number of open connections; 0 means no limit.
	Max int
	// MaxPerClient is the maximum number of open connections of one client address; 0 means no limit.
	MaxPerClient int
	// Proxies lists the trusted proxies. Their X-Forwarded-For headers are believed.
	Proxies []netip.Prefix
	Log     *slog.Logger // nil for no log
}

// Connections holds the open connections of a server. Its methods may be called from any goroutine.
type Connections struct {
	options Options // static

	mu       sync.Mutex
	open     int                  // guarded by mu: connections without a refusal
	refusing int                  // guarded by mu: connections with a refusal
	clients  map[netip.Prefix]int // guarded by mu: number of connections of each client, if not 0
	refused  map[error]int        // guarded by mu: refusals since the start, by reason
	warned   time.Time            // guarded by mu: the time of the last log line about a refusal

	stalled atomic.Int64 // connections that were cut
}

// New returns Connections without any connection.
func New(options Options) *Connections {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	return &Connections{options: options, clients: make(map[netip.Prefix]int), refused: make(map[error]int)}
}

// Configure sets the hooks that c needs in an HTTP server. The server must use the result of Listener.
func (c *Connections) Configure(server *http.Server) {
	server.ConnContext = func(ctx context.Context, inner net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, inner)
	}
	server.ConnState = func(inner net.Conn, state http.ConnState) {
		if accepted, ok := inner.(*conn); ok && state == http.StateIdle {
			c.endRequest(accepted)
		}
	}
}

// connKey is the key of a request's connection in the request's context.
type connKey struct{}

// Listener returns a listener that accepts connections from inner. c counts and limits these connections.
func (c *Connections) Listener(inner net.Listener) net.Listener { return &listener{inner, c} }

type listener struct {
	net.Listener
	owner *Connections
}

// Accept implements net.Listener. It skips connections that add has closed.
func (l *listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if accepted := l.owner.add(inner); accepted != nil {
			return accepted, nil
		}
	}
}

// add counts a new connection. It closes the connection and returns nil if too many refusals are pending.
func (c *Connections) add(inner net.Conn) *conn {
	if tcp, ok := inner.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer)
		limitUnsent(tcp)
	}
	peer, _ := parseAddress(inner.RemoteAddr().String())
	added := &conn{Conn: inner, owner: c, peer: peer, expires: time.Now().Add(refusalTime)}
	c.mu.Lock()
	added.refusal = c.countLocked(added)
	dropped := c.refusing >= maxRefusals
	if added.refusal == nil {
		c.open++
	} else {
		c.refusing++
	}
	c.mu.Unlock()
	if added.refusal == nil {
		return added
	}
	c.report(added.refusal, peer)
	if dropped || added.SetDeadline(added.expires) != nil {
		_ = added.Close()
		return nil
	}
	return added
}

// countLocked counts a new connection for its client, unless it must be refused. It returns the reason of the refusal.
func (c *Connections) countLocked(added *conn) error {
	switch {
	case c.options.Max > 0 && c.open >= c.options.Max:
		return ErrFull
	case c.trusts(added.peer): // Admit counts the connection for the client of each request
		return nil
	}
	return c.assignLocked(added, added.peer)
}

// Admit returns nil if a request may be served, otherwise the reason: ErrFull or ErrClientFull. If the peer is a trusted proxy,
// the connection counts for the request's client from now on. A request on a connection of another listener is always admitted.
func (c *Connections) Admit(r *http.Request) error {
	on, ok := r.Context().Value(connKey{}).(*conn)
	switch {
	case !ok:
		return nil
	case on.refusal != nil || !c.trusts(on.peer):
		return on.refusal
	}
	client := c.Client(r)
	c.mu.Lock()
	c.releaseLocked(on)
	err := c.assignLocked(on, client)
	c.mu.Unlock()
	if err != nil {
		c.report(err, client)
	}
	return err
}

// assignLocked counts a connection for a client. It returns ErrClientFull if the client has too many connections. It counts
// nothing for a client without a limit.
func (c *Connections) assignLocked(on *conn, client netip.Addr) error {
	if on.closed || c.options.MaxPerClient == 0 || !client.IsValid() || client.IsLoopback() || c.trusts(client) {
		return nil
	}
	network := networkOf(client)
	if c.clients[network] >= c.options.MaxPerClient {
		return ErrClientFull
	}
	c.clients[network]++
	on.client = network
	return nil
}

// releaseLocked undoes assignLocked.
func (c *Connections) releaseLocked(on *conn) {
	if !on.client.IsValid() {
		return
	}
	if c.clients[on.client]--; c.clients[on.client] == 0 {
		delete(c.clients, on.client)
	}
	on.client = netip.Prefix{}
}

// report counts a refusal. It logs at most one refusal in warnInterval.
func (c *Connections) report(reason error, client netip.Addr) {
	c.mu.Lock()
	c.refused[reason]++
	serverFull, clientFull := c.refused[ErrFull], c.refused[ErrClientFull]
	quiet := time.Since(c.warned) < warnInterval
	if !quiet {
		c.warned = time.Now()
	}
	c.mu.Unlock()
	if !quiet { // without the lock, because the log may block
		c.options.Log.Warn("connection refused; if the address is a proxy, add it to PARLEY_TRUSTED_PROXIES",
			"reason", reason, "address", client, "refusedServerFull", serverFull, "refusedClientFull", clientFull)
	}
}

// endRequest runs after a request. If the peer is a trusted proxy, the connection then no longer counts for the client of the
// request.
func (c *Connections) endRequest(on *conn) {
	if !c.trusts(on.peer) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseLocked(on)
}

// remove ends the counts of a connection. Later calls do nothing.
func (c *Connections) remove(on *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on.closed {
		return
	}
	on.closed = true
	if on.refusal != nil {
		c.refusing--
		return
	}
	c.open--
	c.releaseLocked(on)
}

// Open returns the number of open connections, without those that are being refused.
func (c *Connections) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// Refused returns the number of refusals since the start, for ErrFull or ErrClientFull.
func (c *Connections) Refused(reason error) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[reason]
}

// Stalled returns the number of connections that were cut since the start because the client did not read.
func (c *Connections) Stalled() int64 { return c.stalled.Load() }
