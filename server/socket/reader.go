package socket

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/server/api"
	"parley/stream"
	"parley/stream/wire"
)

// messageTimeout is the time within which a message must be complete after its first frame has begun. Otherwise, a client that
// answers pings could keep the buffer of an unfinished message, up to 1 MiB, as long as it likes. 30 s suffice for 1 MiB over a
// mobile network; the body of a REST request has the same time.
const messageTimeout = 30 * time.Second

// maxRequestID is the maximum length of a request's id, in bytes. Responses repeat the id, and many responses may wait for a
// client that does not read.
const maxRequestID = 128

// refusalPause is the time for which the reader stops after the limit of frames has refused a frame. So a flood of frames costs
// almost nothing: the reader reads 5 frames a second, and the flow control of TCP stops the client. The pause is short for two
// reasons: the reader also reads the client's pongs, and refused frames must not delay the frames that the client sends after
// retryAfter.
const refusalPause = 200 * time.Millisecond

// read reads a message and handles it. Then it starts the next read in a new goroutine, or releases the connection if that has
// ended. The stack of a goroutine grows while it handles a message, and hardly shrinks. A new goroutine has a small stack, so an
// idle socket takes 4 KiB less.
func (c *connection) read() {
	if c.readFrame() {
		go c.read()
		return
	}
	c.unwatch()
	c.release()
	_ = c.ws.CloseNow()
	c.end()
}

// readFrame reads a message and handles it. It reports whether the connection still works. A frame above the limit of frames gets
// an error, and the reader pauses. An invalid frame gets an error. Ten invalid frames in a row close the connection, because such
// a client is broken and would send more of them.
func (c *connection) readFrame() bool {
	c.awaitOutboxSpace()
	kind, frame, err := c.readMessage()
	switch {
	case err != nil:
		c.recordClose(causeOf(err))
		return false
	case kind != websocket.MessageText:
		c.close(wire.CloseBinary)
		return false
	case !wire.ValidText(frame):
		c.close(wire.CloseInvalidUTF8)
		return false
	}
	if refused := c.frames.Take(); refused != nil {
		c.dialect.refuse(c, frame, refused)
		time.Sleep(refusalPause)
		return true
	}
	if c.dialect.handle(c, frame) {
		c.invalidFrames = 0
	} else if c.invalidFrames++; c.invalidFrames >= wire.MaxInvalidFrames {
		c.close(wire.CloseInvalidFrames)
		return false
	}
	return true
}

// pinged counts a WebSocket ping or pong of the client as a frame. Above the limit, the reader pauses. pinged returns true, so
// every ping gets its pong.
func (c *connection) pinged() bool {
	if c.frames.Take() != nil {
		time.Sleep(refusalPause)
	}
	return true
}

// readMessage waits for a message and returns it. If the message has begun but is not complete within messageTimeout, it closes
// the connection.
func (c *connection) readMessage() (websocket.MessageType, []byte, error) {
	kind, message, err := c.ws.Reader(context.Background()) // closing the connection ends the read
	if err != nil {
		return 0, nil, err
	}
	if c.overdue == nil {
		c.overdue = time.AfterFunc(messageTimeout, func() { c.close(wire.CloseTimeout) })
	} else {
		c.overdue.Reset(messageTimeout)
	}
	defer c.overdue.Stop()
	c.transport.begin()
	defer c.transport.end()
	frame, err := io.ReadAll(message)
	return kind, frame, err
}

// awaitOutboxSpace blocks the reader while maxOutbox responses wait: back pressure on a client that does not read.
func (c *connection) awaitOutboxSpace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.outbox) >= maxOutbox && !c.closed {
		c.outboxSpace.Wait()
	}
}

// checkSession returns an error if the key may not use the session, lacks the scope, or is revoked. A revoked key is refused at
// once, as over REST. The revocation monitor closes the socket only at its next check.
func (c *connection) checkSession(ctx context.Context, id string, scope auth.Scope) error {
	if err := c.mayUse(id, scope); err != nil {
		return err
	}
	return c.registry.Keys.Revalidate(ctx, c.Principal)
}

// mayUse is checkSession without the question to the store whether the key is revoked. It suffices for a send: its admission asks
// this question (see admission).
func (c *connection) mayUse(id string, scope auth.Scope) error {
	switch {
	case id == "":
		return api.Invalid("sessionId", api.Required)
	case !conversation.ValidID(conversation.SessionPrefix, id) || !c.Principal.MayAccess(id):
		return conversation.ErrSessionNotFound
	}
	return api.RequireScope(c.Principal, scope)
}

// storeContext returns a context that is done after storeTimeout.
func storeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), storeTimeout)
}

// admission returns ctx with a new admission. The admission counts a send as a request of the principal and of the session's
// user, as over REST. It refuses a send with a revoked key.
func (c *connection) admission(ctx context.Context, session string) context.Context {
	a := c.registry.Admission(c.Principal)
	a.Subject = session
	return auth.WithAdmission(ctx, a)
}

// describe returns the error that the client sees for err. If a quota caused err, it records the refusal. If err is a 503, it
// records the cause. If the server is at fault, it logs err.
func (c *connection) describe(err error) *api.Error {
	if refused, ok := errors.AsType[*auth.QuotaError](err); ok {
		c.registry.Audit.QuotaRefused(c.Principal, refused)
	}
	e, fault := api.Describe(err)
	switch {
	case e.Status == http.StatusServiceUnavailable:
		c.registry.Unavailable.Record(e.Cause, err, fault, "requestId", c.RequestID)
	case fault:
		c.registry.Log.Error("frame failed", "requestId", c.RequestID, "error", err)
	}
	return e
}

// EndsReply reports whether an event of this kind is the last event in a view of one reply.
func EndsReply(kind stream.EventKind) bool {
	switch kind {
	case stream.Ended, stream.Cleared, stream.Deleted, stream.Expired:
		return true
	}
	return false
}
