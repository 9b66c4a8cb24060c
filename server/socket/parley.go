package socket

import (
	"context"
	"encoding/json"
	"errors"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/server/api"
	"parley/stream"
	"parley/stream/wire"
)

// parleyV1 is the dialect parley.v1. The key of a subscription is its session.
type parleyV1 struct{}

func (parleyV1) greet(c *connection) {
	c.send(wire.Welcome{
		Type: "welcome", Protocol: wire.Protocol, ConnectionID: c.id, HeartbeatSeconds: int(pingInterval.Seconds()),
	})
}

func (parleyV1) announceDrain(c *connection) {
	c.send(wire.Draining{Type: "draining", ReconnectAfterMs: int(reconnectAfter.Milliseconds())})
}

func (parleyV1) writeEvent(c *connection, sub *subscription, event stream.Event) (last bool, err error) {
	frame := sub.viewer.Topic().Encode(event, wire.JSON{})
	defer frame.Release()
	return event.Kind == stream.Deleted || event.Kind == stream.Expired, c.writeEventFrame(frame)
}

// frameHead holds the members that all frames of clients have.
type frameHead struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

func (p parleyV1) refuse(c *connection, frame []byte, err error) {
	var head frameHead
	if json.Unmarshal(frame, &head) != nil || len(head.ID) > maxRequestID {
		head.ID = ""
	}
	p.sendError(c, head.ID, err)
}

func (p parleyV1) handle(c *connection, frame []byte) (valid bool) {
	var head frameHead
	_ = json.Unmarshal(frame, &head) // the strict decoding below reports all errors
	if len(head.ID) > maxRequestID {
		p.sendError(c, "", api.Invalid("id", "must have at most 128 bytes"))
		return false
	}
	switch head.Type {
	case wire.TypeSubscribe:
		return handleAs(c, frame, head.ID, p.subscribe)
	case wire.TypeUnsubscribe:
		return handleAs(c, frame, head.ID, p.unsubscribe)
	case wire.TypeSend:
		return handleAs(c, frame, head.ID, p.send)
	case wire.TypeCancel:
		return handleAs(c, frame, head.ID, p.cancel)
	case wire.TypePing:
		return handleAs(c, frame, head.ID, p.pong)
	}
	err := api.Decode(frame, &struct{}{})
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Field != "" { // the frame is a JSON object, so its type is wrong
		err = api.Invalid("type", "must be subscribe, unsubscribe, send, cancel or ping")
	}
	p.sendError(c, head.ID, err)
	return false
}

// handleAs decodes a frame strictly and passes the request to the handler for the frame's type.
func handleAs[T any](c *connection, frame []byte, id string, handle func(c *connection, request T) error) (valid bool) {
	var request T
	err := api.Decode(frame, &request)
	if err == nil {
		err = handle(c, request)
	}
	if err == nil {
		return true
	}
	return !parleyV1{}.sendError(c, id, err).IsInvalidRequest()
}

// sendError responds to a request with the error object that REST also sends, and returns the error.
func (parleyV1) sendError(c *connection, replyTo string, err error) *api.Error {
	e := c.describe(err)
	c.send(wire.Error{Type: "error", ReplyTo: replyTo, Error: e.Body(), Meta: api.NewMeta(c.RequestID)})
	return e
}

func (p parleyV1) subscribe(c *connection, r wire.Subscribe) error {
	ctx, cancel := storeContext()
	defer cancel()
	if err := c.checkSession(ctx, r.SessionID, auth.ReadMessages); err != nil {
		return err
	}
	from, err := p.parseCursor(ctx, c, r)
	if err != nil {
		return err
	}
	sub := &subscription{key: r.SessionID, session: r.SessionID}
	viewer, position, recovered, err := c.registry.Conversation.View(ctx, c.owner, r.SessionID, from, func() { c.wake(sub) })
	if err != nil {
		return err
	}
	sub.viewer = viewer
	response, err := json.Marshal(wire.Subscribed{
		Type: "subscribed", ReplyTo: r.ID, SessionID: r.SessionID, Cursor: wire.Cursor(r.SessionID, position), Recovered: recovered,
	})
	if err != nil {
		panic(err) // impossible: one of our own types
	}
	return p.addSubscription(c, sub, response)
}

// parseCursor returns the position after which a subscription begins. It returns nil if the subscription begins now.
func (parleyV1) parseCursor(ctx context.Context, c *connection, r wire.Subscribe) (*stream.Position, error) {
	if r.After == nil {
		return nil, nil
	}
	position, err := wire.ParseCursor(r.SessionID, *r.After, api.ValidMessageID)
	if err != nil {
		return nil, api.Invalid("after", api.WrongCursor)
	}
	err = c.registry.Conversation.CheckPosition(ctx, c.owner, r.SessionID, position)
	if errors.Is(err, conversation.ErrNoPosition) {
		e := api.Invalid("after", api.WrongCursor)
		e.UnknownCursor = true
		return nil, e
	}
	return &position, err
}

// addSubscription adds sub, and replaces the session's existing subscription, if any. It queues the response and marks sub as
// ready under one lock, so that no frame of the session precedes the response.
func (parleyV1) addSubscription(c *connection, sub *subscription, response []byte) error {
	c.mu.Lock()
	old := c.subscriptions[sub.key]
	full := old == nil && len(c.subscriptions) >= maxSubscriptions
	if c.closed || full {
		c.mu.Unlock()
		sub.viewer.Close()
		if full {
			return api.Invalid("sessionId", "exceeds the limit of 1,000 subscriptions for one connection")
		}
		return nil
	}
	c.unsubscribeLocked(sub.key)
	c.subscriptions[sub.key] = sub
	c.outbox = append(c.outbox, response)
	c.readyLocked(sub)
	c.mu.Unlock()
	return nil
}

func (parleyV1) unsubscribe(c *connection, r wire.Unsubscribe) error {
	if r.SessionID == "" {
		return api.Invalid("sessionId", api.Required)
	}
	c.mu.Lock()
	c.unsubscribeLocked(r.SessionID)
	c.mu.Unlock()
	c.send(wire.Unsubscribed{Type: "unsubscribed", ReplyTo: r.ID, SessionID: r.SessionID})
	return nil
}

// send begins a turn, or queues it while the session is busy. The reader does not wait for the turn to begin. When the socket
// closes, its queued sends are withdrawn.
func (p parleyV1) send(c *connection, r wire.Send) error {
	if err := c.mayUse(r.SessionID, auth.WriteMessages); err != nil {
		return err
	}
	slot, err := c.registry.Conversation.TakeSlot(c.owner, r.SessionID, r.IdempotencyKey)
	if err != nil {
		return err
	}
	defer slot.Release()
	m, err := api.CheckMessage(r.SessionID, api.MessageRequest{Content: r.Content, Role: r.Role, OnBusy: r.OnBusy, Metadata: r.Metadata})
	if err != nil {
		return err
	}
	if m.Idempotency, err = api.SendIdempotency("idempotencyKey", r.IdempotencyKey, m); err != nil {
		return err
	}
	c.whenBegun(c.registry.Conversation.Begin(c.admission(c.ctx, r.SessionID), slot, m), func(result turn.Result) {
		if result.Err != nil {
			p.sendError(c, r.ID, result.Err)
			return
		}
		sent := wire.Sent{Type: "sent", ReplyTo: r.ID, SessionID: r.SessionID, MessageID: result.Sent.Reply.ID}
		if result.Sent.Replayed {
			sent.Cursor = wire.Cursor(r.SessionID, result.Sent.Position)
		}
		c.send(sent)
		result.Sent.Start() // not earlier, so that "sent" precedes every frame of the turn on this socket
	})
	return nil
}

// cancel cancels a reply. It sends the response after the reply has stopped. The reader does not wait for that.
func (p parleyV1) cancel(c *connection, r wire.Cancel) error {
	ctx, cancel := storeContext()
	defer cancel()
	if err := c.checkSession(ctx, r.SessionID, auth.WriteMessages); err != nil {
		return err
	}
	if r.MessageID == "" {
		return api.Invalid("messageId", api.Required)
	}
	if !api.ValidMessageID(r.MessageID) {
		return conversation.ErrMessageNotFound
	}
	c.cancels <- struct{}{} // blocks for a few seconds at most, because every cancel ends within that time
	c.background(func() {
		defer func() { <-c.cancels }()
		m, err := c.registry.Conversation.Cancel(c.ctx, c.owner, r.SessionID, r.MessageID)
		if err != nil {
			p.sendError(c, r.ID, err)
			return
		}
		c.send(wire.Cancelled{Type: "cancelled", ReplyTo: r.ID, Message: m})
	})
	return nil
}

func (parleyV1) pong(c *connection, r wire.Ping) error {
	c.send(wire.Pong{Type: "pong", ReplyTo: r.ID})
	return nil
}
