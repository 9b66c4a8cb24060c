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
	// backoff is doubled with each attempt, up to maxBackoff, and what is waited drawn from 0 up to that: a herd of clients must not
	// come back at once.
	backoff    = 500 * time.Millisecond
	maxBackoff = 15 * time.Second
	// tooManyWait is the least wait where the server said that there are too many of us.
	tooManyWait = 5 * time.Second
	// firstAttempts is how often something is tried that has not once succeeded; after that, for as long as ctx goes on.
	firstAttempts = 5
)

// viewing is one iteration of a session's events: over one socket, and its successors.
type viewing struct {
	// static
	client  *Client
	session string
	send    *request // what is sent first; nil for a watch

	track    track
	reply    string // the id of the reply, once send is confirmed
	begun    bool   // the subscription, or the send, was confirmed once
	stranger bool   // the server does not know our cursor: subscribe without, and say so
	doubt    bool   // the reply may have gone with what was cleared
	unseen   bool   // and else its end may lie behind us
	mended   string // the cursor at which a gap was last mended
	attempt  int    // how many failed since something came
}

// errOver ends an iteration that has nothing to add.
var errOver = errors.New("over")

// run iterates to the end, the caller's or an error.
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

// connected is one socket's part of the iteration. Its error says how it ended.
func (v *viewing) connected(ctx context.Context, yield func(Event, error) bool) error {
	k, err := v.client.acquire(ctx)
	if err != nil {
		return err
	}
	defer v.client.release(k, v.session) // also where the caller's loop panics
	return v.follow(ctx, k, yield)
}

// follow brings the socket to where the iteration stands, and yields what comes.
func (v *viewing) follow(ctx context.Context, k *conn, yield func(Event, error) bool) error {
	subscribed := false
	if v.track.cursor == "" { // before the send, so that the reply cannot begin unseen
		if err := v.subscribe(ctx, k, yield); err != nil {
			return err
		}
		subscribed = true
	}
	if v.send != nil && v.reply == "" {
		sent, err := k.ask(ctx, v.send, sendWait, func(f *frame) {
			if subscribed && f.SessionID == v.session { // others' messages: ours come after the answer
				v.track.take(f, true)
			}
		})
		if err != nil {
			return err
		}
		v.reply, v.begun, v.attempt = sent.MessageID, true, 0
	}
	if !subscribed { // after the send was repeated, so that what is replayed can be told to be its
		if err := v.subscribe(ctx, k, yield); err != nil {
			return err
		}
	}
	for {
		if v.doubt {
			if err := v.settle(ctx, yield); err != nil {
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

// deliver yields the event that a frame makes, if it makes one.
func (v *viewing) deliver(ctx context.Context, k *conn, f *frame, yield func(Event, error) bool) error {
	if f.ReplyTo != "" || f.SessionID != v.session {
		return nil
	}
	v.attempt = 0
	event, verdict := v.track.take(f, false)
	if verdict == gap {
		// Asked once for what was left out; where it stays away, the terminal frame brings it.
		if v.track.cursor != "" && v.mended != v.track.cursor {
			v.mended = v.track.cursor
			return v.subscribe(ctx, k, yield)
		}
		event, verdict = v.track.take(f, true)
	}
	if verdict == known {
		return nil
	}
	return v.show(event, yield)
}

// subscribe subscribes where the iteration stands. Where that is not all there any more, it begins anew and says so.
func (v *viewing) subscribe(ctx context.Context, k *conn, yield func(Event, error) bool) error {
	r := &request{Type: wire.TypeSubscribe, SessionID: v.session, After: v.track.cursor}
	answer, err := k.ask(ctx, r, answerWait, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == "validation_error" && e.Field == "after" && r.After != "" {
		// The server never told us that cursor, as far as it knows: its store was restored, or has lost writes. Only once, for
		// without a cursor this cannot be refused again.
		v.track.reset("")
		v.stranger, r.After = true, ""
		answer, err = k.ask(ctx, r, answerWait, nil)
	}
	if err != nil {
		return err
	}
	v.attempt = 0
	v.begun = v.begun || v.send == nil
	anew := v.stranger || r.After != "" && !answer.Recovered
	if anew || v.track.cursor == "" {
		v.track.reset(answer.Cursor)
	}
	v.stranger = false
	if anew {
		return v.show(Event{Type: Cleared, SessionID: v.session}, yield)
	}
	return nil
}

// show yields an event, or what it means for the reply that is all a send yields. It returns errOver after the last.
func (v *viewing) show(e Event, yield func(Event, error) bool) error {
	last := e.Type == Deleted || e.Type == Expired
	if v.send != nil {
		switch {
		case last:
			return gone(e.Type)
		case e.Type == Cleared:
			v.doubt, v.unseen = v.reply != "", !e.Recovered
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

// settle finds out what became of the reply when the history was cleared: it may have begun after that. It is asked after
// subscribing, so its end is either in the answer or still comes.
func (v *viewing) settle(ctx context.Context, yield func(Event, error) bool) error {
	if v.client.key == "" {
		return gone(Cleared) // nobody to ask
	}
	var m Message
	err := v.client.Do(ctx, http.MethodGet, messagePath(v.session, v.reply), nil, &m)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound {
		return gone(Cleared)
	}
	if err != nil {
		return err
	}
	v.doubt = false
	if v.unseen && m.Status != "streaming" {
		return v.show(Event{Type: End, SessionID: v.session, MessageID: m.MessageID, Message: &m}, yield)
	}
	return nil
}

// gone is the error of a reply that will not end, for its session was deleted or expired, or its history cleared.
func gone(how string) error {
	return &Error{Code: "session_" + how, Message: "the session was " + how + " before the reply ended"}
}

// passing are the refusals that may well not be repeated.
var passing = map[string]bool{
	"service_unavailable": true, "internal_error": true, "rate_limit_exceeded": true, "connection_lost": true,
}

// again reports whether an error calls for another attempt, and after what wait.
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
	if !ok || !passing[e.Code] {
		return 0, false
	}
	// Whoever has only just asked would rather know of a limit than wait for a minute.
	return max(e.RetryAfter, spread), v.begun || e.Status >= http.StatusInternalServerError && tryFirst
}

// failure returns err as callers see it.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l, ok := errors.AsType[*lost](err); ok {
		return &Error{Code: "connection_lost", Message: "the server cannot be reached", cause: l.cause}
	}
	return err
}

// pause waits, and reports whether ctx goes on.
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
