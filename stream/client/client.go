// Package client is the Go client of Parley and its stream protocol, parley.v1 (design section 4).
//
// A viewer is an offset into a text, so a cut is nothing to the caller: an iteration that loses its socket dials again,
// names its last cursor, and drops what it has shown before. What it yields has no gap and nothing twice.
//
// An iteration reads its socket in the caller's own goroutine, so the client has no goroutine and no queue: a caller
// that takes its time holds only its own socket back, and gets fewer, larger deltas. A socket is one iteration's at a
// time and is kept a while for the next one, as net/http keeps its connections.
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

// Options say which service a client talks to, and as whom.
type Options struct {
	// BaseURL is the service's address with its version: "https://parley.example/v1".
	BaseURL string
	// Key is an API key. Without one Ticket is needed, and only Send, Watch and Cancel can be used.
	Key string
	// Ticket returns a ticket for one handshake; nil connects with Key. An [Error] of status 401 or 403 is final, after any
	// other error it is asked again. It may be called by several goroutines at once.
	Ticket func(ctx context.Context) (string, error)
	// HTTPClient makes requests and handshakes; nil is one of the client's own.
	HTTPClient *http.Client
}

// Client talks to one service. All its methods may be called from any goroutine.
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
	idle []*conn // guarded by mu: sockets that no iteration uses, the last used last
}

// New returns a client. It dials nothing yet.
func New(o Options) *Client {
	c := &Client{baseURL: strings.TrimRight(o.BaseURL, "/"), key: o.Key, ticket: o.Ticket, http: o.HTTPClient}
	if c.http == nil {
		c.own = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialWait}
		c.http = &http.Client{Transport: c.own}
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// NewMessage is a message to send (spec: Send Message).
type NewMessage struct {
	Content  string // at most 10,000 characters
	Role     string // "user" or "system"; "" is "user"
	Metadata any    // encoded as a JSON object of at most 16 KiB; nil is none
	OnBusy   string // while another reply runs in the session: "enqueue" (also ""), "reject" or "interrupt"
	// IdempotencyKey names the message, so that sending it again has no effect twice; "" is a random one.
	IdempotencyKey string
}

// Send sends a message, once, and iterates the events of its reply: [Created], [Delta] …, [End]. Nothing is sent before
// the iteration starts. Leaving it, or ending ctx, only leaves: the reply goes on, and [Client.Cancel] stops it.
//
// A cut at any time is only a pause: what was not confirmed is sent again under the same idempotency key, so it takes
// effect once. The last pair has an error if the message was refused ([Error]: context_overflow, rate_limit_exceeded,
// session_busy, …), if the server was not reached before the message was confirmed (connection_lost, after a few
// attempts; it may or may not have been taken), if the reply went with its session or history (session_deleted,
// session_expired, session_cleared), or if ctx ended.
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

// Watch iterates the events of a session: those after a cursor, or from now on if it is "". A cursor is an event's, or
// that of the newest page of history, of Get Session and Get Message: whoever loads those misses nothing and sees
// nothing twice. It ends after [Deleted] and [Expired], and with an error if the session cannot be watched or ctx ended.
//
// A cut is only a pause. A cursor that the server does not know (its store was restored from a backup, or lost writes
// when it failed over) is no error either: see [Cleared].
func (c *Client) Watch(ctx context.Context, sessionID, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		c.iterate(ctx, &viewing{client: c, session: sessionID, track: track{cursor: after}}, yield)
	}
}

// iterate runs one iteration, which Close ends too.
func (c *Client) iterate(ctx context.Context, v *viewing, yield func(Event, error) bool) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.ctx, func() { stop(errClosed) })()
	v.run(ctx, yield)
}

// Cancel stops a reply and returns the message as it ended; of one that has ended, as it is. It may be repeated.
func (c *Client) Cancel(ctx context.Context, sessionID, messageID string) (Message, error) {
	var m Message
	if c.key != "" {
		return m, c.Do(ctx, http.MethodPost, messagePath(sessionID, messageID)+"/cancel", nil, &m)
	}
	for {
		answer, err := c.cancel(ctx, &request{Type: wire.TypeCancel, SessionID: sessionID, MessageID: messageID})
		switch l, ok := errors.AsType[*lost](err); {
		case ok && l.stale: // once for each that lay idle
		case err != nil:
			return m, failure(ctx, err)
		case answer.Message == nil:
			return m, errNonsense
		default:
			return *answer.Message, nil
		}
	}
}

// cancel makes the request on a socket.
func (c *Client) cancel(ctx context.Context, r *request) (*frame, error) {
	conn, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release(conn, "")
	return conn.ask(ctx, r, answerWait, nil)
}

// Close ends everything: iterations that are under way, and what is called afterwards, have an [Error] with the code
// closed. It does not wait for them: an iteration is its caller's.
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
