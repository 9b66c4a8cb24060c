package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"parley/stream/wire"
)

const (
	// dialWait is the timeout for opening a socket, until its welcome frame arrives.
	dialWait = 10 * time.Second
	// answerWait is the timeout for the response to a subscribe or a cancel.
	answerWait = 15 * time.Second
	// sendWait is the timeout for the response to a send, which may wait in the session's queue for 30 s.
	sendWait = 45 * time.Second
	// silence is the timeout for the next frame or ping. The server pings every 25 s.
	silence = 60 * time.Second
	// idleWait is the time after which the client closes an idle socket. It is shorter than the 25 s between the server's
	// pings, because the client does not answer pings on an idle socket.
	idleWait = 20 * time.Second
	// maxIdle is the maximum number of idle sockets.
	maxIdle = 16
	// maxFrame is the maximum size of a server's frame in bytes. It is large, because a terminal frame contains the whole
	// reply.
	maxFrame = 64 << 20
	// unsubscribeWait is the timeout for the unsubscribe request that the client writes before a socket becomes idle.
	unsubscribeWait = 2 * time.Second
)

// conn is one socket. It belongs to one iteration at a time, and only that iteration's goroutine uses it.
type conn struct {
	ws *websocket.Conn
	// watchdog closes a socket that is silent or idle for too long. The watchdog is stopped while the caller processes an
	// event, because that may take any time.
	watchdog *time.Timer
	ids      int           // number of requests so far; also the id of the newest request
	stale    bool          // the socket was idle before this iteration, and no frame has arrived in the iteration
	dead     bool          // a read or a write has failed
	draining bool          // the server is shutting down
	drain    time.Duration // the delay before the next attempt, as chosen by a draining server
}

// request is a frame to the server. It has the fields of all types of requests.
type request struct {
	Type           string `json:"type"`
	ID             string `json:"id"`
	SessionID      string `json:"sessionId"`
	After          string `json:"after,omitempty"`
	MessageID      string `json:"messageId,omitempty"`
	Content        string `json:"content,omitempty"`
	Role           string `json:"role,omitempty"`
	Metadata       any    `json:"metadata,omitempty"`
	OnBusy         string `json:"onBusy,omitempty"`
	IdempotencyKey string `json:"idempotencyKey,omitempty"`
}

// frame is a frame from the server. It has the fields of all types of frames.
type frame struct {
	Type      string   `json:"type"`
	ReplyTo   string   `json:"replyTo"`
	SessionID string   `json:"sessionId"`
	MessageID string   `json:"messageId"`
	Message   *Message `json:"message"`
	Offset    int      `json:"offset"`
	Delta     string   `json:"delta"`
	Cursor    string   `json:"cursor"`
	Recovered bool     `json:"recovered"`
	errorBody

	ReconnectAfterMs                               int
	Summarised, Dropped, TokensBefore, TokensAfter int
}

// lost is the error for a socket that could not be opened, or that has broken. The server may have carried out the last
// request.
type lost struct {
	cause error
	stale bool          // the socket had been idle, so retry at once on another socket
	wait  time.Duration // minimum delay before the next attempt
	drain bool          // the server chose the delay, so the delay is exactly wait
}

func (l *lost) Error() string { return "the connection was lost: " + l.cause.Error() }
func (l *lost) Unwrap() error { return l.cause }

// acquire returns an idle socket, or opens a new socket. The error is a *lost or an *Error.
func (c *Client) acquire(ctx context.Context) (*conn, error) {
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	c.mu.Lock()
	for len(c.idle) > 0 {
		last := len(c.idle) - 1
		conn := c.idle[last]
		c.idle = c.idle[:last]
		if conn.watchdog.Stop() { // if Stop returns false, the watchdog is just closing this socket
			c.mu.Unlock()
			conn.stale = true
			return conn, nil
		}
	}
	c.mu.Unlock()
	return c.dial(ctx)
}

// release adds a socket to the idle sockets. It closes the socket instead if the socket is dead or draining, or if maxIdle
// sockets are idle. session is the id of the session that the socket is subscribed to, or "".
func (c *Client) release(conn *conn, session string) {
	if conn.dead || conn.draining {
		conn.close()
		return
	}
	if session != "" {
		ctx, cancel := context.WithTimeout(context.Background(), unsubscribeWait)
		defer cancel()
		if conn.write(ctx, &request{Type: wire.TypeUnsubscribe, SessionID: session}) != nil {
			conn.close()
			return
		}
	}
	c.mu.Lock()
	keep := c.ctx.Err() == nil && len(c.idle) < maxIdle
	if keep {
		c.idle = append(c.idle, conn)
		conn.watchdog.Reset(idleWait)
	}
	c.mu.Unlock()
	if !keep {
		conn.close()
	}
}

// evict closes a socket, and removes it from the idle sockets if it is idle. The watchdog of the socket calls evict.
func (c *Client) evict(k *conn) {
	c.mu.Lock()
	c.idle = slices.DeleteFunc(c.idle, func(other *conn) bool { return other == k })
	c.mu.Unlock()
	_ = k.ws.CloseNow()
}

// dial opens a socket and reads its welcome frame.
func (c *Client) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	k := new(conn)
	options := &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: http.Header{}, Subprotocols: []string{wire.Protocol},
		OnPingReceived: func(context.Context, []byte) bool { k.watchdog.Reset(silence); return true },
	}
	switch {
	case c.ticket != nil:
		ticket, err := c.ticket(ctx)
		if e, ok := errors.AsType[*Error](err); ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
			return nil, e
		}
		if err != nil {
			return nil, &lost{cause: err}
		}
		options.Subprotocols = append(options.Subprotocols, "ticket."+ticket)
	case c.key != "":
		options.HTTPHeader.Set("Authorization", "Bearer "+c.key)
	default:
		return nil, errNoKey
	}
	ws, response, err := websocket.Dial(ctx, c.baseURL+"/stream", options)
	if err != nil && response != nil && response.StatusCode >= 300 {
		body, _ := io.ReadAll(response.Body) // the library has kept the first 1 KiB
		return nil, refusal(response.StatusCode, body)
	}
	if err != nil {
		return nil, &lost{cause: err}
	}
	ws.SetReadLimit(maxFrame)
	k.ws = ws
	k.watchdog = time.AfterFunc(silence, func() { c.evict(k) })
	if f, err := k.next(ctx); err != nil {
		k.close()
		return nil, err
	} else if f.Type != "welcome" {
		k.close()
		return nil, errNotParley
	}
	return k, nil
}

func (k *conn) close() {
	k.watchdog.Stop()
	_ = k.ws.CloseNow()
}

func (k *conn) write(ctx context.Context, r *request) error {
	k.ids++
	r.ID = strconv.Itoa(k.ids)
	body, err := json.Marshal(r)
	if err != nil {
		return &Error{Code: "validation_error", Message: "metadata cannot be encoded as JSON", Field: "metadata", cause: err}
	}
	if err := k.ws.Write(ctx, websocket.MessageText, body); err != nil {
		return k.failed(err)
	}
	return nil
}

// ask sends a request and returns the response. Frames that are not a response to any request may arrive earlier: ask
// passes them to meanwhile, unless meanwhile is nil. If no response arrives within timeout, the socket is closed.
func (k *conn) ask(ctx context.Context, r *request, timeout time.Duration, meanwhile func(*frame)) (*frame, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := k.write(ctx, r); err != nil {
		return nil, err
	}
	for {
		f, err := k.next(ctx)
		switch {
		case err != nil:
			return nil, err
		case f.ReplyTo == "" && meanwhile != nil:
			meanwhile(f)
		case f.ReplyTo != r.ID:
		case f.Type != "error":
			return f, nil
		case f.Error == nil:
			return nil, errNotParley
		default:
			f.Error.RequestID = f.Meta.RequestID
			return nil, f.Error
		}
	}
}

// next returns the next frame. If ctx ends first, the socket is closed. next does not return draining frames: it records
// them in k.
func (k *conn) next(ctx context.Context) (*frame, error) {
	for {
		k.watchdog.Reset(silence)
		_, body, err := k.ws.Read(ctx)
		k.watchdog.Stop()
		if err != nil {
			return nil, k.failed(err)
		}
		f := new(frame)
		if err := json.Unmarshal(body, f); err != nil {
			return nil, k.failed(err)
		}
		if f.Type == "draining" {
			k.draining, k.drain = true, time.Duration(f.ReconnectAfterMs)*time.Millisecond
			continue
		}
		k.stale = false
		return f, nil
	}
}

// failed marks the socket as dead, and returns the error that callers of conn get: a *lost, or an *Error if the server
// closed the socket because of the key. err is the error of the read or write.
func (k *conn) failed(err error) error {
	k.dead = true
	l := &lost{cause: err, stale: k.stale, wait: k.drain, drain: k.draining}
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		switch wire.CloseCode(closed.Code) {
		case wire.CloseUnauthorized:
			return &Error{Code: "invalid_token", Message: strings.TrimSpace(closed.Reason), Status: http.StatusUnauthorized, cause: err}
		case wire.CloseTooManyConnections:
			l.wait = tooManyWait
		}
	}
	return l
}
