package socket

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/coder/websocket"

	"parley/conversation"
	"parley/stream"
)

// send queues a frame that is not an event: a response to a request, or a notice.
func (c *connection) send(frame any) {
	body, err := json.Marshal(frame)
	if err != nil {
		panic(err) // impossible: frame has one of our own types
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.outbox = append(c.outbox, body)
		c.startWriterLocked()
	}
}

// wake makes the writer write the events of a subscription. The subscription's viewer calls wake.
func (c *connection) wake(sub *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !sub.closed {
		c.readyLocked(sub)
	}
}

// readyLocked appends a subscription to the ready subscriptions and starts the writer.
func (c *connection) readyLocked(sub *subscription) {
	c.ready = append(c.ready, sub)
	c.startWriterLocked()
}

// startWriterLocked starts the writer, unless it is running.
func (c *connection) startWriterLocked() {
	if !c.writing {
		c.writing = true
		c.registry.work.Add(1)
		go c.writer()
	}
}

// write runs the writer until nothing is left to write. It serves the ready subscriptions round-robin, one event each. It
// writes responses before events, so that `sent` precedes every frame of its turn.
func (c *connection) write() {
	defer c.registry.work.Done()
	var served *subscription // got the previous event
	for {
		responses, sub, more := c.next(served)
		served = nil
		if !more || !c.writeResponses(responses) {
			return
		}
		if sub == nil {
			continue
		}
		event, ok, err := sub.viewer.Next(c.ctx)
		if errors.Is(err, conversation.ErrUnavailable) { // the store is unreachable; the socket stays open
			time.AfterFunc(HistoryRetry, func() { c.wake(sub) })
			continue
		}
		if err != nil {
			if c.ctx.Err() == nil {
				c.registry.Log.Warn("socket closed: history cannot be read", "requestId", c.RequestID, "error", err)
			}
			c.abort()
			return
		}
		if !ok { // the viewer calls wake when it has an event
			continue
		}
		if served, ok = c.writeEvent(sub, event); !ok {
			return
		}
	}
}

// next returns the work of the writer: the responses, or else the first ready subscription. If served is not nil, it becomes the
// last ready subscription. If more is false, nothing is left to write, and the writer must exit.
func (c *connection) next(served *subscription) (responses [][]byte, sub *subscription, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if served != nil && !served.closed {
		c.ready = append(c.ready, served)
	}
	if responses = c.takeResponsesLocked(); responses != nil {
		return responses, nil, true
	}
	for len(c.ready) > 0 {
		sub := c.ready[0]
		copy(c.ready, c.ready[1:])
		c.ready = c.ready[:len(c.ready)-1]
		if !sub.closed {
			return nil, sub, true
		}
	}
	c.writing = false
	return nil, nil, false
}

// takeResponsesLocked removes the responses from the outbox and returns them; nil if there are none.
func (c *connection) takeResponsesLocked() [][]byte {
	responses := c.outbox
	if responses != nil {
		c.outbox = nil
		c.outboxSpace.Broadcast()
	}
	return responses
}

// writeEvent writes an event of a subscription, after the responses that were queued before the event was published. It returns
// the subscription if more events may follow. ok reports whether the connection still works.
func (c *connection) writeEvent(sub *subscription, event stream.Event) (served *subscription, ok bool) {
	c.mu.Lock()
	responses, closed := c.takeResponsesLocked(), sub.closed
	c.mu.Unlock()
	if !c.writeResponses(responses) {
		return nil, false
	}
	if closed {
		return nil, true
	}
	last, err := c.dialect.writeEvent(c, sub, event)
	switch {
	case err != nil:
		c.abort()
		return nil, false
	case !last:
		return sub, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !sub.closed {
		c.unsubscribeLocked(sub.key)
	}
	return nil, true
}

// writeResponses writes responses. It reports whether the connection still works.
func (c *connection) writeResponses(responses [][]byte) bool {
	for _, frame := range responses {
		if c.writeFrame(frame) != nil {
			c.abort()
			return false
		}
	}
	return true
}

// writeEventFrame writes the frame of an event. It writes a frame with a large text in fragments.
func (c *connection) writeEventFrame(frame *stream.Frame) error {
	if whole, ok := frame.Whole(); ok {
		return c.writeFrame(whole)
	}
	w, err := c.ws.Writer(context.Background(), websocket.MessageText)
	if err == nil {
		_, err = frame.WriteTo(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		c.recordClose(causeOf(err))
	}
	return err
}

// writeFrame writes a text frame. If the write fails because of the client, writeFrame records the cause. The context of the
// write has no deadline, because a deadline would cost more than the write itself. The connection has its own deadline
// (transport.Stall).
func (c *connection) writeFrame(frame []byte) error {
	err := c.ws.Write(context.Background(), websocket.MessageText, frame)
	if err != nil {
		c.recordClose(causeOf(err))
	}
	return err
}
