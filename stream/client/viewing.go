package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"parley/stream/wire"
)

const (
	// backoff is the upper bound of the first delay. It doubles with each attempt, up to maxBackoff. The delay is random
	// between 0 and the bound, so that clients do not return all at once.
	backoff    = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
	// tooManyWait is the minimum delay after the server said that there are too many connections.
	tooManyWait = 5 * time.Second
	// firstAttempts is the number of attempts if none has succeeded yet. After a success, the client retries until ctx
	// ends.
	firstAttempts = 5
)

// viewing is one iteration over a session's events, on one socket after another.
type viewing struct {
	// static
	client  *Client
	session string
	send    *request // the message to send; nil for Watch

	track         track
	reply         string // the id of the reply, once the send was confirmed
	begun         bool   // the server has confirmed the subscription of a Watch, or the send
	unknownCursor bool   // the server did not know our cursor, so yield Cleared after subscribing without one
	uncertain     bool   // the reply may have been cleared
	unseen        bool   // the end of the reply may have been missed
	filled        string // the cursor from which a gap was last filled
	attempt       int    // failed attempts since the last frame
}

// errOver ends an iteration without an error.
var errOver = errors.New("over")

// run iterates until the session or the reply ends, an error is final, or the caller leaves the loop.
func (v *viewing) run(ctx context.Context, yield func(Event, error) bool) {
	for {
		err := v.connected(ctx, yield)
		if err == errOver {
			return
		}
		wait, again := v.again(err)
		if !again || !pause(ctx, wait) {
			yield(Event{}, failure(ctx, err))
			return
		}
	}
}

// connected runs the iteration on one socket. The error says why it ended; it is never nil.
func (v *viewing) connected(ctx context.Context, yield func(Event, error) bool) error {
	k, err := v.client.acquire(ctx)
	if err != nil {
		return err
	}
	defer v.client.release(k, v.session) // also if the caller's loop panics
	return v.follow(ctx, k, yield)
}

// follow subscribes and sends on a new socket what the iteration still needs, then yields events. Its error is never nil.
func (v *viewing) follow(ctx context.Context, k *conn, yield func(Event, error) bool) error {
	subscribed := false
	if v.track.cursor == "" { // subscribe before the send, so that the beginning of the reply is not missed
		if err := v.subscribe(ctx, k, yield); err != nil {
			return err
		}
		subscribed = true
	}
	if v.send != nil && v.reply == "" {
		sent, err := k.ask(ctx, v.send, sendWait, func(f *frame) {
			if subscribed && f.SessionID == v.session { // only events of other turns: those of our turn follow the response
				v.track.take(f, true)
			}
		})
		if err != nil {
			return err
		}
		v.reply, v.begun, v.attempt = sent.MessageID, true, 0
	}
	if !subscribed { // subscribe after the repeated send: we must know the id of the reply before its events come
		if err := v.subscribe(ctx, k, yield); err != nil {
			return err
		}
	}
	for {
		if v.uncertain {
			if err := v.checkReply(ctx, yield); err != nil {
				return err
			}
		}
		f, err := k.next(ctx)
		if err != nil {
			return err
		}
		if err := v.deliver(ctx, k, f, yield); err != nil {
			return err
		}
	}
}

// deliver yields the event of a frame, if the frame has a new one.
func (v *viewing) deliver(ctx context.Context, k *conn, f *frame, yield func(Event, error) bool) error {
	if f.ReplyTo != "" || f.SessionID != v.session {
		return nil
	}
	v.attempt = 0
	event, verdict := v.track.take(f, false)
	if verdict == gap {
		// Ask once for the missing text. If it does not come, the terminal frame has it.
		if v.track.cursor != "" && v.filled != v.track.cursor {
			v.filled = v.track.cursor
			return v.subscribe(ctx, k, yield)
		}
		event, verdict = v.track.take(f, true)
	}
	if verdict == known {
		return nil
	}
	return v.show(event, yield)
}

// subscribe subscribes at the cursor of the iteration. If the server no longer has everything after that cursor, the view
// continues from the cursor in the response, and subscribe yields Cleared.
func (v *viewing) subscribe(ctx context.Context, k *conn, yield func(Event, error) bool) error {
	r := &request{Type: wire.TypeSubscribe, SessionID: v.session, After: v.track.cursor}
	answer, err := k.ask(ctx, r, answerWait, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == "validation_error" && e.Field == "after" && r.After != "" {
		// The server does not know this cursor: its store was restored, or has lost writes. This happens once, since a
		// request without a cursor cannot be refused like this.
		v.track.reset("")
		v.unknownCursor, r.After = true, ""
		answer, err = k.ask(ctx, r, answerWait, nil)
	}
	if err != nil {
		return err
	}
	v.attempt = 0
	v.begun = v.begun || v.send == nil
	anew := v.unknownCursor || r.After != "" && !answer.Recovered
	if anew || v.track.cursor == "" {
		v.track.reset(answer.Cursor)
	}
	v.unknownCursor = false
	if anew {
		return v.show(Event{Type: Cleared, SessionID: v.session}, yield)
	}
	return nil
}

// show yields an event. During a Send, it skips events of other replies. It returns errOver after the last event, and
// when the caller leaves the loop.
func (v *viewing) show(e Event, yield func(Event, error) bool) error {
	last := e.Type == Deleted || e.Type == Expired
	if v.send != nil {
		switch {
		case last:
			return gone(e.Type)
		case e.Type == Cleared:
			v.uncertain, v.unseen = v.reply != "", !e.Recovered
			return nil
		case e.MessageID != v.reply:
			return nil
		}
		last = e.Type == End
	}
	if !yield(e, nil) || last {
		return errOver
	}
	return nil
}

// checkReply finds out whether the reply still exists after the history was cleared: the reply may have begun after that.
// It asks after subscribing, so the end of the reply is either in the response or still to come.
func (v *viewing) checkReply(ctx context.Context, yield func(Event, error) bool) error {
	if v.client.key == "" {
		return gone(Cleared) // REST needs a key
	}
	var m Message
	err := v.client.Do(ctx, http.MethodGet, messagePath(v.session, v.reply), nil, &m)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound {
		return gone(Cleared)
	}
	if err != nil {
		return err
	}
	v.uncertain = false
	if v.unseen && m.Status != "streaming" {
		return v.show(Event{Type: End, SessionID: v.session, MessageID: m.MessageID, Message: &m}, yield)
	}
	return nil
}

// gone returns the error for a reply that will have no End: its session was deleted or expired, or its history cleared.
func gone(how string) error {
	return &Error{Code: "session_" + how, Message: "the session was " + how + " before the reply ended"}
}

// transient has the codes of errors after which a later attempt may succeed.
var transient = map[string]bool{
	"service_unavailable": true, "internal_error": true, "rate_limit_exceeded": true, "connection_lost": true,
}

// again reports whether to retry after an error, and after which delay.
func (v *viewing) again(err error) (wait time.Duration, again bool) {
	spread := rand.N(min(maxBackoff, backoff<<min(v.attempt, 10)))
	v.attempt++
	tryFirst := v.begun || v.attempt < firstAttempts
	if l, ok := errors.AsType[*lost](err); ok {
		switch {
		case l.stale:
			v.attempt--
			return 0, true
		case l.drain:
			return l.wait, tryFirst
		}
		return max(l.wait, spread), tryFirst
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || !transient[e.Code] {
		return 0, false
	}
	// Before the send is confirmed, report a rate limit to the caller at once: waiting may take a minute.
	return max(e.RetryAfter, spread), v.begun || e.Status >= http.StatusInternalServerError && tryFirst
}

// failure converts an internal error to the one that callers get.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l, ok := errors.AsType[*lost](err); ok {
		return &Error{Code: "connection_lost", Message: "the server cannot be reached", cause: l.cause}
	}
	return err
}

// pause waits. It returns false if ctx ended first.
func pause(ctx context.Context, wait time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
