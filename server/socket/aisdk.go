package socket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/server/api"
	"parley/stream"
	"parley/stream/wire"
)

// aiSDK is the dialect ai-sdk.v7, which WebSocketChatTransport in the npm package ai speaks. Each request (a send or a resume)
// has its own subscription, with the requestId as the key. The subscription shows one reply from its beginning.
//
// If the client gets an unknown frame, it closes the socket and fails all its requests. So this dialect has no greeting, no
// JSON heartbeat and no drain notice. An error ends only its own request.
type aiSDK struct {
	// owned by the writer
	frames []byte // the frames of one event

	// guarded by connection.mu
	lastEnded map[string]string // by session: the last reply that this socket showed to its end
}

// sdkRequest is a send or a resume.
type sdkRequest struct {
	// static
	withdraw context.CancelFunc // withdraws a queued send; nil for a resume

	// owned by the writer
	encoder wire.AISDKFrameEncoder

	// guarded by connection.mu
	reply      string // the reply's id; "" until it is known, and then constant
	aborted    bool
	superseded bool // another resume of the chat came after the abort
}

const (
	// maxKeptBuffer is the maximum size of the buffer for frames that a socket keeps between events, in bytes.
	maxKeptBuffer = 4 << 10
	// resumeGrace is the delay before the abort of a resume cancels the reply. The AI SDK aborts a resume for two reasons: the
	// user stops the reply, or the page resumes again. In the second case, a new resume follows at once, and the reply must go
	// on.
	resumeGrace = 250 * time.Millisecond
	// maxLastEnded is the maximum number of entries of lastEnded. If a session's entry was evicted, a resume may show the
	// session's last reply again.
	maxLastEnded = maxSubscriptions
)

// sdkHandlers holds the handlers of frames by the frame's type. The client gets the errors that they return.
var sdkHandlers = map[string]func(d *aiSDK, c *connection, id string, f sdkFrame) error{
	"send": (*aiSDK).send, "resume": (*aiSDK).resume, "abort": (*aiSDK).abort,
}

func (*aiSDK) greet(*connection) {}

func (*aiSDK) announceDrain(*connection) {}

func (d *aiSDK) handle(c *connection, frame []byte) (valid bool) {
	f, err := parseSDKFrame(frame)
	if err != nil {
		d.sendError(c, "", err)
		return false
	}
	id, err := f.requestID()
	if err != nil {
		d.sendError(c, "", err)
		return false
	}
	kind, err := f.text("type")
	if handle := sdkHandlers[kind]; handle != nil {
		err = handle(d, c, id, f)
	} else if err == nil {
		err = api.Invalid("type", "must be send, resume or abort")
	}
	if err == nil {
		return true
	}
	return !d.sendError(c, id, err).IsInvalidRequest()
}

// sendError responds to a request with the text of an error, and returns the error. The dialect has no field for the error's
// code. id is "" if the frame has no readable id; no request has the id "".
func (*aiSDK) sendError(c *connection, id string, err error) *api.Error {
	e := c.describe(err)
	text := e.Message
	if e.Status == http.StatusTooManyRequests {
		text += " Try again in " + strconv.FormatInt(api.Seconds(e.RetryAfter), 10) + " s."
	}
	c.send(wire.AISDKControlFrame{Type: "error", RequestID: id, ErrorText: text})
	return e
}

// chat returns the id of the chat that a frame names, which is the id of a session. It returns an error if the key may not use
// the session or lacks the scope.
func (*aiSDK) chat(c *connection, f sdkFrame, scope auth.Scope) (string, error) {
	id, err := f.text("id")
	if err != nil {
		return "", err
	}
	return id, c.mayUse(id, scope)
}

// addRequest adds sub to the socket's requests and returns true. If the connection is closed, it returns false without an
// error. If sub has a viewer, first is the frame before the viewer's events.
func (*aiSDK) addRequest(c *connection, sub *subscription, first []byte) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return false, nil
	case c.subscriptions[sub.key] != nil:
		return false, api.Invalid("requestId", "belongs to a request that is still in progress")
	case len(c.subscriptions) >= maxSubscriptions:
		return false, api.Invalid("requestId", "exceeds the limit of 1,000 requests at once for one connection")
	}
	c.subscriptions[sub.key] = sub
	if sub.viewer != nil {
		c.outbox = append(c.outbox, first)
		c.readyLocked(sub)
	}
	return true, nil
}

// endRequest ends a request and calls respond, unless the request has already ended.
func (*aiSDK) endRequest(c *connection, sub *subscription, respond func()) {
	c.mu.Lock()
	ended := sub.closed
	if !ended {
		c.unsubscribeLocked(sub.key)
	}
	c.mu.Unlock()
	if !ended {
		respond()
	}
}

func (d *aiSDK) failRequest(c *connection, sub *subscription, err error) {
	d.endRequest(c, sub, func() { d.sendError(c, sub.key, err) })
}

// send sends the last user message of the chat and shows the reply. While the send is queued, an abort or the end of the
// socket withdraws it.
func (d *aiSDK) send(c *connection, id string, f sdkFrame) error {
	session, err := d.chat(c, f, auth.WriteMessages)
	if err != nil {
		return err
	}
	slot, err := c.registry.Conversation.TakeSlot(c.owner, session, nil)
	if err != nil {
		return err
	}
	defer slot.Release()
	m, err := f.message(session)
	if err != nil {
		return err
	}
	ctx, withdraw := context.WithCancel(c.ctx)
	sub := &subscription{key: id, session: session, request: &sdkRequest{withdraw: withdraw, encoder: wire.NewAISDKFrameEncoder(id)}}
	if added, err := d.addRequest(c, sub, nil); !added {
		withdraw()
		return err
	}
	c.whenBegun(c.registry.Conversation.Begin(c.admission(ctx, session), slot, m), func(result turn.Result) {
		withdraw()
		d.turnBegan(c, sub, result.Sent, result.Err)
		if result.Sent != nil {
			result.Sent.Start()
		}
	})
	return nil
}

// turnBegan handles the result of a send. It starts to show the reply, or ends the request with the error. It does not block.
func (d *aiSDK) turnBegan(c *connection, sub *subscription, x *turn.Sent, err error) {
	c.mu.Lock()
	aborted, closed := sub.request.aborted, c.closed || sub.closed
	if err == nil {
		sub.request.reply = x.Reply.ID
		if !closed {
			c.registry.work.Add(1) // under the lock: the registry waits for the connection as long as it is open
		}
	}
	c.mu.Unlock()
	switch {
	case closed:
	case err != nil && aborted: // the send was withdrawn
		d.endRequest(c, sub, func() { c.send(wire.AISDKControlFrame{Type: "end", RequestID: sub.key}) })
	case err != nil:
		d.failRequest(c, sub, err)
	default:
		go func() {
			defer c.registry.work.Done()
			d.showReply(c, sub, x.Position)
			if aborted { // the abort came while the turn began
				d.cancel(c, sub)
			}
		}()
	}
}

// showReply starts to show the reply of a send.
func (d *aiSDK) showReply(c *connection, sub *subscription, from stream.Position) {
	ctx, cancel := storeContext()
	defer cancel()
	viewer, _, recovered, err := c.registry.Conversation.View(ctx, c.owner, sub.session, &from, func() { c.wake(sub) })
	if err != nil {
		d.failRequest(c, sub, err)
		return
	}
	if !recovered {
		viewer.Close()
		d.failRequest(c, sub, conversation.ErrMessageNotFound)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub.closed {
		viewer.Close()
		return
	}
	sub.viewer = viewer
	c.readyLocked(sub)
}

// resume shows the live reply of a chat. Without a live reply, it shows the newest reply, unless this socket has already shown
// the end of that reply. It always shows a reply from its beginning. If the resume fails, it cancels the replies of the
// aborted requests that it superseded.
func (d *aiSDK) resume(c *connection, id string, f sdkFrame) error {
	session, err := d.chat(c, f, auth.ReadMessages)
	if err != nil {
		return err
	}
	ctx, cancel := storeContext()
	defer cancel()
	if err := c.registry.Keys.Revalidate(ctx, c.Principal); err != nil {
		return err
	}
	superseded := d.supersede(c, session)
	err = d.showAgain(c, id, session)
	if err != nil {
		for _, sub := range superseded {
			d.startCancel(c, sub)
		}
	}
	return err
}

// showAgain starts to show the reply that a resume gets. If there is no such reply, it responds with no-active.
func (d *aiSDK) showAgain(c *connection, id, session string) error {
	ctx, cancel := storeContext()
	defer cancel()
	reply, err := d.resumable(ctx, c, session)
	if err != nil {
		return err
	}
	sub := &subscription{key: id, session: session, request: &sdkRequest{reply: reply, encoder: wire.NewAISDKFrameEncoder(id)}}
	recovered := false
	if reply != "" {
		from := stream.Before(reply)
		sub.viewer, _, recovered, err = c.registry.Conversation.View(ctx, c.owner, session, &from, func() { c.wake(sub) })
		if err != nil {
			return err
		}
	}
	if !recovered { // no reply, or the history was cleared meanwhile
		if sub.viewer != nil {
			sub.viewer.Close()
		}
		c.send(wire.AISDKControlFrame{Type: "no-active", RequestID: id})
		return nil
	}
	start, err := json.Marshal(wire.AISDKControlFrame{Type: "start", RequestID: id})
	if err != nil {
		panic(err) // impossible: one of our own types
	}
	added, err := d.addRequest(c, sub, start)
	if !added {
		sub.viewer.Close()
	}
	return err
}

// supersede ends the aborted resumes of a chat and returns them. A new resume of the chat calls supersede, so that an abort in
// its grace period cancels nothing.
func (*aiSDK) supersede(c *connection, session string) (superseded []*subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sub := range c.subscriptions {
		if sub.session == session && sub.request.aborted && sub.request.withdraw == nil {
			sub.request.superseded = true
			c.unsubscribeLocked(sub.key)
			superseded = append(superseded, sub)
		}
	}
	return superseded
}

// resumable returns the id of the reply that a resume of the session shows; "" if there is no such reply.
func (d *aiSDK) resumable(ctx context.Context, c *connection, id string) (string, error) {
	session, _, err := c.registry.Conversation.Session(ctx, c.owner, id)
	if err != nil || session.LiveReply != "" {
		return session.LiveReply, err
	}
	c.mu.Lock()
	lastEnded := d.lastEnded[id]
	c.mu.Unlock()
	if session.Head <= session.Cleared || session.Head == lastEnded {
		return "", nil
	}
	newest, _, err := c.registry.Conversation.Message(ctx, c.owner, id, session.Head)
	switch {
	case errors.Is(err, conversation.ErrMessageNotFound), err == nil && newest.Role != conversation.Assistant:
		return "", nil
	case err != nil:
		return "", err
	}
	return newest.ID, nil
}

// abort cancels the reply of a request, or withdraws its queued send. The abort of a resume waits for resumeGrace, and cancels
// nothing if another resume follows. abort ignores an unknown request, because its reply may have just ended.
func (d *aiSDK) abort(c *connection, id string, _ sdkFrame) error {
	c.mu.Lock()
	sub := c.subscriptions[id]
	if sub == nil || sub.request.aborted {
		c.mu.Unlock()
		return nil
	}
	sub.request.aborted = true
	reply := sub.request.reply
	c.mu.Unlock()
	ctx, cancel := storeContext()
	defer cancel()
	if err := c.checkSession(ctx, sub.session, auth.WriteMessages); err != nil {
		d.failRequest(c, sub, err)
		return nil
	}
	if reply == "" {
		sub.request.withdraw()
		return nil
	}
	if sub.request.withdraw != nil { // the request is a send
		d.startCancel(c, sub)
		return nil
	}
	c.background(func() { // cancels the reply even if the client disconnects meanwhile
		time.Sleep(resumeGrace)
		c.mu.Lock()
		superseded := sub.request.superseded
		c.mu.Unlock()
		if !superseded {
			d.startCancel(c, sub)
		}
	})
	return nil
}

// startCancel cancels a request's reply in the background. It blocks while maxCancels cancels of the socket are running.
func (d *aiSDK) startCancel(c *connection, sub *subscription) {
	c.cancels <- struct{}{} // blocks for a few seconds at most, because every cancel ends within that time
	c.background(func() {
		defer func() { <-c.cancels }()
		d.cancel(c, sub)
	})
}

// cancel cancels a request's reply, even if the client disconnects meanwhile. The viewer shows the end of the reply. cancel
// sends no error, because the client no longer listens to the request; describe logs a fault.
func (*aiSDK) cancel(c *connection, sub *subscription) {
	ctx, done := storeContext()
	defer done()
	if _, err := c.registry.Conversation.Cancel(ctx, c.owner, sub.session, sub.request.reply); err != nil {
		c.describe(err)
	}
}

func (d *aiSDK) writeEvent(c *connection, sub *subscription, event stream.Event) (last bool, err error) {
	r := sub.request
	if event.Entry != nil && event.Entry.ID != r.reply { // the reply was removed before it ended
		d.failRequest(c, sub, conversation.ErrMessageNotFound)
		return true, nil
	}
	d.frames = r.encoder.AppendFrames(d.frames[:0], event)
	last = EndsReply(event.Kind)
	if last { // before the write, because the client may send the next request as soon as it sees the end
		d.finish(c, sub, event)
	}
	for frame := range bytes.Lines(d.frames) {
		if err := c.writeFrame(frame[:len(frame)-1]); err != nil {
			return last, err
		}
	}
	if cap(d.frames) > maxKeptBuffer {
		d.frames = nil
	}
	return last, nil
}

// finish ends a request after its reply has ended or was removed. If the reply has ended, finish notes it in lastEnded.
func (d *aiSDK) finish(c *connection, sub *subscription, event stream.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !sub.closed {
		c.unsubscribeLocked(sub.key)
	}
	if event.Kind != stream.Ended {
		return
	}
	if d.lastEnded == nil {
		d.lastEnded = make(map[string]string)
	}
	if _, known := d.lastEnded[sub.session]; !known && len(d.lastEnded) >= maxLastEnded {
		for other := range d.lastEnded { // evict an arbitrary entry
			delete(d.lastEnded, other)
			break
		}
	}
	d.lastEnded[sub.session] = sub.request.reply
}
