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

// Options configure a [Client].
type Options struct {
	// BaseURL is the URL of the service with its version: "https://parley.example/v1".
	BaseURL string
	// Key is an API key. A client without a key needs Ticket, and only Send, Watch and Cancel work.
	Key string
	// Ticket returns a ticket for one handshake; nil means that handshakes use Key. If Ticket returns an [Error] with
	// status 401 or 403, the Send, Watch or Cancel that needed the ticket ends with that error. After any other error, the
	// client may call Ticket again. Several goroutines may call Ticket at the same time.
	Ticket func(ctx context.Context) (string, error)
	// HTTPClient makes requests and handshakes; nil means a new HTTP client with its own connections.
	HTTPClient *http.Client
}

// Client is a client of one service. The methods of a Client may be called from any goroutine.
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
	idle []*conn // sockets that no iteration uses, the most recently used last; guarded by mu
}

// New returns a client. New opens no connection.
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
	// IdempotencyKey identifies the message. "" means a random key. A second send with the same key stores no message. It
	// yields the events of the first send's reply from the beginning, even if that reply has ended.
	IdempotencyKey string
}

// Send sends a message and iterates over the events of the reply: [Created], [Delta] …, [End]. Nothing is sent before the
// iteration starts. The reply goes on when the caller leaves the loop or ctx ends. To stop the reply, call [Client.Cancel].
//
// After a lost connection, the iteration continues on another connection. If the server had not confirmed the message, the
// client sends the message again with the same idempotency key. So the message takes effect once. The iteration ends with
// an error in these cases:
//
//   - The server refused the message: context_overflow, rate_limit_exceeded, session_busy, … (see [Error]).
//   - Five attempts failed before the server confirmed the message: connection_lost. The server may have accepted the
//     message.
//   - The session or its history was removed before the reply ended: session_deleted, session_expired, session_cleared.
//   - An earlier send had the same idempotency key, and its reply was removed: message_not_found.
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

// Watch iterates over the events of a session. after is the cursor after which the iteration begins. If after is "", the
// iteration begins with the next event. Most events, the newest page of the history, and the responses to Get Session and
// Get Message contain a cursor. An iteration that begins after a cursor misses no later text, and yields no text twice.
//
// The iteration ends after [Deleted] and [Expired]. It ends with an error if the server refuses the subscription, if five
// attempts fail at the beginning, if ctx ended, or if the client was closed. After a lost connection, the iteration
// continues on another connection. A cursor that the server does not know is not an error: the store may have been restored
// from a backup, or may have lost writes in a failover. The iteration then yields [Cleared].
func (c *Client) Watch(ctx context.Context, sessionID, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c.iterate(ctx, &viewing{client: c, session: sessionID, track: track{cursor: after}}, yield)
	}
}

// iterate runs one iteration. The iteration also ends when the client is closed.
func (c *Client) iterate(ctx context.Context, v *viewing, yield func(Event, error) bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.ctx, func() { stop(errClosed) })()
	v.run(ctx, yield)
}

// Cancel stops a reply and returns the reply in its final state. If the reply has already ended, Cancel only returns it.
// A repeated call is safe.
func (c *Client) Cancel(ctx context.Context, sessionID, messageID string) (Message, error) {
	var m Message
	if c.key != "" {
		return m, c.Do(ctx, http.MethodPost, messagePath(sessionID, messageID)+"/cancel", nil, &m)
	}
	for {
		answer, err := c.cancel(ctx, &request{Type: wire.TypeCancel, SessionID: sessionID, MessageID: messageID})
		switch l, ok := errors.AsType[*lost](err); {
		case ok && l.stale: // try again on another socket, at most once for each idle socket
		case err != nil:
			return m, failure(ctx, err)
		case answer.Message == nil:
			return m, errNotParley
		default:
			return *answer.Message, nil
		}
	}
}

// cancel sends r on a socket and returns the response.
func (c *Client) cancel(ctx context.Context, r *request) (*frame, error) {
	conn, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release(conn, "")
	return conn.ask(ctx, r, answerWait, nil)
}

// Close ends all iterations with an [Error] that has the code closed. Later calls return the same error. Close does not
// wait for iterations, because they run in the goroutines of their callers.
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
