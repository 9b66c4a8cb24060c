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

// Options name a service and the credentials for it.
type Options struct {
	// BaseURL is the service's address with its version: "https://parley.example/v1".
	BaseURL string
	// Key is an API key. A client without a key needs Ticket, and only Send, Watch and Cancel work.
	Key string
	// Ticket returns a ticket for one handshake; nil means that handshakes use Key. An [Error] with status 401 or 403
	// ends the call. After any other error, the client calls Ticket again. It must be safe to call from several
	// goroutines at once.
	Ticket func(ctx context.Context) (string, error)
	// HTTPClient makes requests and handshakes; nil means a client with its own connections.
	HTTPClient *http.Client
}

// Client talks to one service. Its methods may be called from any goroutine.
type Client struct {
	// static
	baseURL string
	key     string
	ticket  func(ctx context.Context) (string, error)
	http    *http.Client
	own     *http.Transport // transport of http; nil if the caller supplied http
	ctx     context.Context // ends with Close
	end     context.CancelFunc

	mu   sync.Mutex
	idle []*conn // guarded by mu: sockets that no iteration uses, the most recently used last
}

// New returns a client. It opens no connection yet.
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
	Metadata any    // encoded as a JSON object of at most 16 KiB; nil means none
	OnBusy   string // what to do if the session has a live reply: "enqueue" (the default), "reject" or "interrupt"
	// IdempotencyKey identifies the message, so that a repeated send has no second effect; "" means a random key.
	IdempotencyKey string
}

// Send sends a message once and iterates over the events of its reply: [Created], [Delta] …, [End]. It sends nothing
// before the iteration starts. Leaving the loop, or ending ctx, does not stop the reply; [Client.Cancel] does.
//
// After a lost connection, the iteration continues on another one. If the message was not confirmed, the client sends it
// again with the same idempotency key, so it takes effect once. The iteration ends with an error in these cases:
//
//   - The server refused the message: context_overflow, rate_limit_exceeded, session_busy, … (see [Error]).
//   - The server was unreachable in five attempts, before it confirmed the message: connection_lost. The message may have
//     been accepted.
//   - The session or its history was removed before the reply ended: session_deleted, session_expired, session_cleared.
//   - ctx ended, or the client was closed.
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

// Watch iterates over the events of a session. It begins after the cursor after, or at the present if after is "". An
// event, the newest page of the history, Get Session and Get Message all return a cursor; no event is missed and none
// comes twice. The iteration ends after [Deleted] and [Expired]. It ends with an error if the session cannot be viewed or
// if ctx ended.
//
// After a lost connection, the iteration continues on another one. A cursor that the server does not know is no error:
// the store may have been restored from a backup, or have lost writes in a failover. See [Cleared].
func (c *Client) Watch(ctx context.Context, sessionID, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c.iterate(ctx, &viewing{client: c, session: sessionID, track: track{cursor: after}}, yield)
	}
}

// iterate runs one iteration. Close also ends it.
func (c *Client) iterate(ctx context.Context, v *viewing, yield func(Event, error) bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.ctx, func() { stop(errClosed) })()
	v.run(ctx, yield)
}

// Cancel stops a reply and returns the message in its final state. If the reply has already ended, it returns that
// message. Repeating it is safe.
func (c *Client) Cancel(ctx context.Context, sessionID, messageID string) (Message, error) {
	var m Message
	if c.key != "" {
		return m, c.Do(ctx, http.MethodPost, messagePath(sessionID, messageID)+"/cancel", nil, &m)
	}
	for {
		answer, err := c.cancel(ctx, &request{Type: wire.TypeCancel, SessionID: sessionID, MessageID: messageID})
		switch l, ok := errors.AsType[*lost](err); {
		case ok && l.stale: // try another socket: this happens at most once for each idle one
		case err != nil:
			return m, failure(ctx, err)
		case answer.Message == nil:
			return m, errNotParley
		default:
			return *answer.Message, nil
		}
	}
}

// cancel sends the request on a socket and returns the response.
func (c *Client) cancel(ctx context.Context, r *request) (*frame, error) {
	conn, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release(conn, "")
	return conn.ask(ctx, r, answerWait, nil)
}

// Close ends all iterations and all later calls with an [Error] whose code is closed. It does not wait for iterations,
// because they run in the goroutines of their callers.
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
