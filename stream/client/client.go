package client

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"

	"parley/stream/wire"
)

// Options say which service a client talks to, and with which credentials.
type Options struct {
	// BaseURL is the service's address with its version: "https://parley.example/v1".
	BaseURL string
	// Key is an API key. Without one Ticket is needed, and only Send, Watch and Cancel work.
	Key string
	// Ticket returns a ticket for one handshake; nil connects with Key. An [Error] with status 401 or 403 is final.
	// After any other error it is called again. It may be called from several goroutines at once.
	Ticket func(ctx context.Context) (string, error)
	// HTTPClient makes requests and handshakes; nil uses the client's own.
	HTTPClient *http.Client
}

// Client talks to one service. Its methods may be called from any goroutine.
type Client struct {
	// static
	baseURL string
	key     string
	ticket  func(ctx context.Context) (string, error)
	http    *http.Client
	own     *http.Transport // nil if http is the caller's
	ctx     context.Context // ends with Close
	end     context.CancelFunc

	mu   sync.Mutex
	idle []*conn // guarded by mu: sockets without an iteration, the most recently used last
}

// New returns a client. It does not connect yet.
func New(o Options) *Client {
	c := &Client{baseURL: strings.TrimRight(o.BaseURL, "/"), key: o.Key, ticket: o.Ticket, http: o.HTTPClient}
	if c.http == nil {
		c.own = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialWait}
		c.http = &http.Client{Transport: c.own}
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// NewMessage is a message to send.
type NewMessage struct {
	Content  string // at most 10,000 characters
	Role     string // "user" or "system"; "" is "user"
	Metadata any    // encoded as a JSON object of at most 16 KiB; nil is none
	OnBusy   string // if another reply is running in the session: "enqueue" (the default), "reject" or "interrupt"
	// IdempotencyKey identifies the message, so that repeating it has no second effect; "" chooses a random one.
	IdempotencyKey string
}

// Send sends a message, once, and iterates over the events of its reply: [Created], [Delta] …, [End]. Nothing is sent
// before the iteration starts. Leaving the loop, or ending ctx, does not stop the reply; [Client.Cancel] does.
//
// A lost connection is only a pause: what was not confirmed is sent again with the same idempotency key, so it takes
// effect once. The last pair has an error if the message was refused ([Error]: context_overflow, rate_limit_exceeded,
// session_busy, …), if the server could not be reached before the message was confirmed (connection_lost, after five
// attempts; the message may have been accepted), if the session or its history was removed before the reply ended
// (session_deleted, session_expired, session_cleared), or if ctx ended.
func (c *Client) Send(ctx context.Context, sessionID string, m NewMessage) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		send := &request{
			Type: wire.TypeSend, SessionID: sessionID, Content: m.Content, Role: m.Role, Metadata: m.Metadata, OnBusy: m.OnBusy,
			IdempotencyKey: m.IdempotencyKey,
		}
		if send.IdempotencyKey == "" {
			send.IdempotencyKey = rand.Text()
		}
		c.iterate(ctx, &viewing{client: c, session: sessionID, send: send}, yield)
	}
}

// Watch iterates over the events of a session: those after a cursor, or from now on if it is "". Take the cursor from
// an event, or from the newest page of the history, Get Session or Get Message: nothing is missed and nothing comes
// twice. The iteration ends after [Deleted] and [Expired], and with an error if the session cannot be viewed or ctx
// ended.
//
// A lost connection is only a pause. A cursor that the server does not know is no error either: its store may have
// been restored from a backup, or have lost writes in a failover. See [Cleared].
func (c *Client) Watch(ctx context.Context, sessionID, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c.iterate(ctx, &viewing{client: c, session: sessionID, track: track{cursor: after}}, yield)
	}
}

// iterate runs one iteration, which Close also ends.
func (c *Client) iterate(ctx context.Context, v *viewing, yield func(Event, error) bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.ctx, func() { stop(errClosed) })()
	v.run(ctx, yield)
}

// Cancel stops a reply and returns the message as it ended. If the reply has ended already, it returns that.
// Repeating it is safe.
func (c *Client) Cancel(ctx context.Context, sessionID, messageID string) (Message, error) {
	var m Message
	if c.key != "" {
		return m, c.Do(ctx, http.MethodPost, messagePath(sessionID, messageID)+"/cancel", nil, &m)
	}
	for {
		answer, err := c.cancel(ctx, &request{Type: wire.TypeCancel, SessionID: sessionID, MessageID: messageID})
		switch l, ok := errors.AsType[*lost](err); {
		case ok && l.stale: // try again: happens once for each idle socket
		case err != nil:
			return m, failure(ctx, err)
		case answer.Message == nil:
			return m, errNotParley
		default:
			return *answer.Message, nil
		}
	}
}

// cancel sends the request on a socket.
func (c *Client) cancel(ctx context.Context, r *request) (*frame, error) {
	conn, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release(conn, "")
	return conn.ask(ctx, r, answerWait, nil)
}

// Close ends all iterations and later calls with an [Error] whose code is closed. It does not wait for iterations,
// since they run in their callers' goroutines.
func (c *Client) Close() {
	c.end()
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, conn := range idle {
		conn.close()
	}
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}
