package server

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/stream"
	"parley/stream/wire"
)

// maxRequestID is the length of a request's id at most: answers that wait for a client that does not read repeat it.
const maxRequestID = 128

// read reads the client's frames until the connection ends. A frame that cannot be understood is answered with an
// error; too many in a row end the connection.
func (k *socket) read() {
	ctx := context.Background() // closing the connection ends the read
	for {
		k.waitForRoom()
		kind, frame, err := k.conn.Read(ctx)
		switch {
		case err != nil:
			return
		case kind != websocket.MessageText:
			k.close(wire.CloseBinary)
			return
		case !wire.ValidText(frame):
			k.close(wire.CloseInvalidUTF8)
			return
		}
		if k.dialect.handle(k, frame) {
			k.nonsense = 0
		} else if k.nonsense++; k.nonsense >= wire.MaxInvalidFrames {
			k.close(wire.CloseInvalidFrames)
			return
		}
	}
}

// waitForRoom holds the reader back while a client lets its answers pile up.
func (k *socket) waitForRoom() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.outbox) >= maxOutbox && !k.closed {
		k.room.Wait()
	}
}

// parleyV1 is the dialect parley.v1 (design section 4).
type parleyV1 struct{}

func (parleyV1) greet(k *socket) {
	k.answer(wire.Welcome{
		Type: "welcome", Protocol: wire.Protocol, ConnectionID: k.id, HeartbeatSeconds: int(heartbeat.Seconds()),
	})
}

func (parleyV1) leave(k *socket) {
	k.answer(wire.Draining{Type: "draining", ReconnectAfterMs: int(reconnectAfter.Milliseconds())})
}

func (parleyV1) show(k *socket, sub *subscription, event stream.Event) (last bool, err error) {
	frame := sub.viewer.Topic().Encode(event, wire.JSON{})
	defer frame.Release()
	return event.Kind == stream.Deleted || event.Kind == stream.Expired,
		k.conn.Write(context.Background(), websocket.MessageText, frame.Bytes)
}

func (parleyV1) handle(k *socket, frame []byte) bool {
	var head struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	_ = json.Unmarshal(frame, &head) // what is wrong with it is found below
	if len(head.ID) > maxRequestID {
		k.refuse("", invalid("id", "must have at most 128 bytes"))
		return false
	}
	switch head.Type {
	case wire.TypeSubscribe:
		return take(k, frame, head.ID, k.subscribe)
	case wire.TypeUnsubscribe:
		return take(k, frame, head.ID, k.unsubscribe)
	case wire.TypeSend:
		return take(k, frame, head.ID, k.send)
	case wire.TypeCancel:
		return take(k, frame, head.ID, k.cancel)
	case wire.TypePing:
		return take(k, frame, head.ID, k.pong)
	}
	if err := decode(frame, &struct{}{}); err != nil {
		if e, _ := describe(err); e.field == "" { // no JSON object at all
			k.refuse(head.ID, err)
			return false
		}
	}
	k.refuse(head.ID, invalid("type", "must be subscribe, unsubscribe, send, cancel or ping"))
	return false
}

// take decodes a frame strictly and passes it to the request's handler.
func take[T any](k *socket, frame []byte, id string, handle func(request T) error) bool {
	var request T
	if err := decode(frame, &request); err != nil {
		k.refuse(id, err)
		return false
	}
	if err := handle(request); err != nil {
		k.refuse(id, err)
		e, _ := describe(err)
		return e.code != "validation_error" || e.honest
	}
	return true
}

// refuse answers a request with an error: the same one as over REST.
func (k *socket) refuse(replyTo string, err error) {
	e, fault := describe(err)
	if fault {
		k.server.Log.Error("a frame failed", "requestId", k.requestID, "error", err)
	}
	k.answer(wire.Error{
		Type: "error", ReplyTo: replyTo, Error: e.body(),
		Meta: meta{RequestID: k.requestID, Timestamp: conversation.TimeOf(time.Now())},
	})
}

// session checks that the socket may do with a session what needs the scope. Like a request, a frame is refused as soon as
// the key is revoked, though the socket is closed only a moment later.
func (k *socket) session(id string, scope auth.Scope) error {
	switch {
	case id == "":
		return invalid("sessionId", missing)
	case !conversation.ValidID(conversation.SessionPrefix, id) || !k.principal.MayAccess(id):
		return conversation.ErrSessionNotFound
	}
	ctx, cancel := deadline()
	defer cancel()
	if err := k.server.Keys.Revalidate(ctx, k.principal); err != nil {
		return err
	}
	return requireScope(k.principal, scope)
}

// deadline bounds what the socket's reader waits for a store.
func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

func (k *socket) subscribe(r wire.Subscribe) error {
	if err := k.session(r.SessionID, auth.ReadMessages); err != nil {
		return err
	}
	var from *stream.Position
	if r.After != nil {
		position, err := wire.ParseCursor(r.SessionID, *r.After, validMessage)
		if err != nil {
			return invalid("after", noCursor)
		}
		from = &position
	}
	ctx, cancel := deadline()
	defer cancel()
	if from != nil {
		err := k.server.Conversation.CheckPosition(ctx, k.owner, r.SessionID, *from)
		if errors.Is(err, conversation.ErrNoPosition) {
			e := invalid("after", noCursor)
			e.honest = true
			return e
		}
		if err != nil {
			return err
		}
	}
	sub := &subscription{key: r.SessionID, session: r.SessionID}
	viewer, position, recovered, err := k.server.Conversation.View(ctx, k.owner, r.SessionID, from, func() { k.wake(sub) })
	if err != nil {
		return err
	}
	sub.viewer = viewer
	answer, err := json.Marshal(wire.Subscribed{
		Type: "subscribed", ReplyTo: r.ID, SessionID: r.SessionID, Cursor: wire.Cursor(r.SessionID, position), Recovered: recovered,
	})
	if err != nil {
		panic(err) // our own struct
	}
	return k.watch(r.SessionID, sub, answer)
}

// watch makes sub the session's subscription, in place of one that there may be. Its answer and its first event are
// put in line together, so that nothing comes between.
func (k *socket) watch(session string, sub *subscription, answer []byte) error {
	k.mu.Lock()
	old := k.subscriptions[session]
	full := old == nil && len(k.subscriptions) >= maxSubscriptions
	if k.closed || full {
		k.mu.Unlock()
		sub.viewer.Close()
		if full {
			return invalid("sessionId", "is one too many: a connection has at most 1,000 subscriptions")
		}
		return nil
	}
	k.drop(session)
	k.subscriptions[session] = sub
	k.outbox = append(k.outbox, answer)
	k.ready = append(k.ready, sub)
	k.kick()
	k.mu.Unlock()
	return nil
}

func (k *socket) unsubscribe(r wire.Unsubscribe) error {
	if r.SessionID == "" {
		return invalid("sessionId", missing)
	}
	k.mu.Lock()
	k.drop(r.SessionID)
	k.mu.Unlock()
	k.answer(wire.Unsubscribed{Type: "unsubscribed", ReplyTo: r.ID, SessionID: r.SessionID})
	return nil
}

// send begins a turn, or takes its place in the session's queue: the socket goes on meanwhile. A queued send is given
// up when the socket closes.
func (k *socket) send(r wire.Send) error {
	if err := k.session(r.SessionID, auth.WriteMessages); err != nil {
		return err
	}
	m, err := newMessage(r.SessionID, r.Content, r.Role, r.OnBusy, r.Metadata)
	if err != nil {
		return err
	}
	if m.Idempotency, err = sendIdempotency("idempotencyKey", r.IdempotencyKey, m); err != nil {
		return err
	}
	// A send is a request, as it is over REST (design section 6).
	ctx := auth.WithAdmission(k.ctx, k.server.Limits.Admission(k.principal))
	k.whenBegun(k.server.Conversation.Begin(ctx, k.owner, m), func(result turn.Result) {
		if result.Err != nil {
			k.refuse(r.ID, result.Err)
			return
		}
		k.answer(wire.Sent{Type: "sent", ReplyTo: r.ID, SessionID: r.SessionID, MessageID: result.Sent.Reply.ID})
		result.Sent.Start() // so that "sent" precedes every frame of the turn on this socket
	})
	return nil
}

// whenBegun passes the result of a send on: at once, or from another goroutine if the send is queued, which must not hold up its
// socket.
func (k *socket) whenBegun(results <-chan turn.Result, do func(turn.Result)) {
	select {
	case result := <-results:
		do(result)
	default:
		k.server.work.Add(1)
		go func() {
			defer k.server.work.Done()
			do(<-results)
		}()
	}
}

// cancel cancels a reply; it is answered when the reply has stopped, and the socket goes on meanwhile.
func (k *socket) cancel(r wire.Cancel) error {
	if err := k.session(r.SessionID, auth.WriteMessages); err != nil {
		return err
	}
	if r.MessageID == "" {
		return invalid("messageId", missing)
	}
	if !validMessage(r.MessageID) {
		return conversation.ErrMessageNotFound
	}
	k.cancels <- struct{}{} // each place is free again within seconds
	k.server.work.Add(1)
	go func() {
		defer func() { <-k.cancels; k.server.work.Done() }()
		m, err := k.server.Conversation.Cancel(k.ctx, k.owner, r.SessionID, r.MessageID)
		if err != nil {
			k.refuse(r.ID, err)
			return
		}
		k.answer(wire.Cancelled{Type: "cancelled", ReplyTo: r.ID, Message: m})
	}()
	return nil
}

func (k *socket) pong(r wire.Ping) error {
	k.answer(wire.Pong{Type: "pong", ReplyTo: r.ID})
	return nil
}
