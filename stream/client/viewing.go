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
	// backoff is the upper bound of the first delay. The bound doubles with each attempt, up to maxBackoff. The delay is
	// random between 0 and the bound, so that clients do not all return at the same time.
	backoff    = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
	// tooManyWait is the minimum delay after the server has closed a socket with CloseTooManyConnections.
	tooManyWait = 5 * time.Second
	// firstAttempts is the maximum number of attempts before the iteration has begun. After that, the client retries until
	// ctx ends.
	firstAttempts = 5
)

// viewing is one iteration over the events of a session. It uses a new socket after each lost connection.
type viewing struct {
	// static
	client  *Client
	session string
	send    *request // the message to send; nil for Watch

	track         track
	reply         string // the id of the reply; "" until the server has confirmed the send
	begun         bool   // the server has confirmed the subscription of a Watch, or the send of a Send
	unknownCursor bool   // the server did not know the cursor, so yield Cleared after the next subscribe
	uncertain     bool   // the history was cleared, and the reply may have been removed
	unseen        bool   // the reply may have ended while the connection was lost
	filled        string // the cursor of the last request for missing text
	attempt       int    // number of failed attempts since the last frame
}

// errOver ends an iteration. The caller of Send or Watch does not get this error.
var errOver = errors.New("over")

// run iterates until the session or the reply ends, a retry is useless, ctx ends, or the caller leaves the loop.
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

// connected runs the iteration on one socket. It always returns an error: the reason why it has stopped.
func (v *viewing) connected(ctx context.Context, yield func(Event, error) bool) error {
	k, err := v.client.acquire(ctx)
	if err != nil {
		return err
	}
	defer v.client.release(k, v.session) // also if the caller's loop panics
	return v.follow(ctx, k, yield)
}

// follow subscribes to the session, and sends the message unless the server has confirmed it. Then follow yields events. It
// always returns an error: the reason why it has stopped.
func (v *viewing) follow(ctx context.Context, k *conn, yield func(Event, error) bool) error {
	subscribed := false
	if v.track.cursor == "" { // subscribe before the send, to get the beginning of the reply
		if err := v.subscribe(ctx, k, yield); err != nil {
			return err
		}
		subscribed = true
	}
	if v.send != nil && v.reply == "" {
		replayed, err := v.confirm(ctx, k, subscribed)
		if err != nil {
			return err
		}
		subscribed = subscribed && !replayed
	}
	if !subscribed { // after a lost connection, subscribe after the send: events of the reply must not come before its id
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

// confirm sends the message and records the id of the reply. It skips the events before the response, because they belong to
// other turns. But if the session was removed or its history was cleared, this may have happened after the turn began.
//
// If replayed is true, an earlier send with the same idempotency key began the turn. The reply may have begun, or even ended,
// before the subscription. So confirm sets the track to the beginning of the reply, and the caller must subscribe again.
func (v *viewing) confirm(ctx context.Context, k *conn, subscribed bool) (replayed bool, err error) {
	last := ""
	sent, err := k.ask(ctx, v.send, sendWait, func(f *frame) {
		if subscribed && f.SessionID == v.session {
			if e, _ := v.track.take(f, true); e.Type == Deleted || e.Type == Expired || e.Type == Cleared {
				last = e.Type
			}
		}
	})
	if err != nil {
		return false, err
	}
	v.reply, v.begun, v.attempt = sent.MessageID, true, 0
	switch {
	case sent.Cursor != "":
		v.track.reset(sent.Cursor)
		return true, nil
	case last == Cleared:
		v.uncertain = v.client.key != "" // without a key, the client cannot request the reply
	case last != "":
		return false, gone(last)
	}
	return false, nil
}

// deliver yields the event of a frame, unless the caller has got the event before. If text before the frame is missing,
// deliver requests the missing text.
func (v *viewing) deliver(ctx context.Context, k *conn, f *frame, yield func(Event, error) bool) error {
	if f.ReplyTo != "" || f.SessionID != v.session {
		return nil
	}
	v.attempt = 0
	event, verdict := v.track.take(f, false)
	if verdict == gap {
		// Request the missing text once. If the server does not send it, the caller gets it with the terminal frame.
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

// subscribe subscribes to the session from the cursor of the iteration. If the server no longer has all events after that
// cursor, subscribe yields Cleared, and the iteration continues from the cursor in the response.
func (v *viewing) subscribe(ctx context.Context, k *conn, yield func(Event, error) bool) error {
	r := &request{Type: wire.TypeSubscribe, SessionID: v.session, After: v.track.cursor}
	answer, err := k.ask(ctx, r, answerWait, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == "validation_error" && e.Field == "after" && r.After != "" {
		// The server does not know this cursor: its store was restored from a backup, or has lost writes. Subscribe again
		// without a cursor.
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

// show yields an event. During a Send, it skips the events of other messages. It returns errOver after the last event, and
// when the caller leaves the loop. If the session of a Send is gone, show returns the error for the caller.
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

// checkReply requests the reply after the history was cleared, because the reply may have begun after the clear. If the
// reply does not exist, checkReply returns the error for the caller. The iteration has subscribed before, so the end of the
// reply is either in the response or in a later frame.
func (v *viewing) checkReply(ctx context.Context, yield func(Event, error) bool) error {
	if v.client.key == "" {
		return gone(Cleared) // without a key, the client cannot request the reply
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

// gone returns the error for a reply that has no End, because the session was deleted, has expired or was cleared. how is
// one of these three events.
func gone(how string) error {
	return &Error{Code: "session_" + how, Message: "the session was " + how + " before the reply ended"}
}

// transient contains the error codes after which a later attempt may succeed.
var transient = map[string]bool{
	"quota_exceeded":      true, // of the handshake: the sockets of a dead node still count for some seconds
	"service_unavailable": true, "internal_error": true, "rate_limit_exceeded": true, "connection_lost": true,
}

// again decides whether to retry after err. If again is true, wait is the delay before the retry.
func (v *viewing) again(err error) (wait time.Duration, again bool) {
	spread := rand.N(min(maxBackoff, backoff<<min(v.attempt, 10)))
	v.attempt++
	attemptsLeft := v.begun || v.attempt < firstAttempts
	if l, ok := errors.AsType[*lost](err); ok {
		switch {
		case l.stale:
			v.attempt--
			return 0, true
		case l.drain:
			return l.wait, attemptsLeft
		}
		return max(l.wait, spread), attemptsLeft
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || !transient[e.Code] {
		return 0, false
	}
	// Before the iteration has begun, the caller gets a rate_limit_exceeded at once, because the delay may be a minute.
	return max(e.RetryAfter, spread), v.begun || e.Status >= http.StatusInternalServerError && attemptsLeft
}

// failure converts an error of an iteration to the error that the caller gets. If ctx has ended, failure returns the cause
// of ctx.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l, ok := errors.AsType[*lost](err); ok {
		return &Error{Code: "connection_lost", Message: "the server cannot be reached", cause: l.cause}
	}
	return err
}

// pause waits for the duration wait and returns true. If ctx ends first, pause returns false.
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
