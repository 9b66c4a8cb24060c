package embedded

import (
	"context"
	"errors"
	"slices"

	"parley/conversation"
)

// queue holds the waiters of a session, in order. Operations change copies of a queue. A copy replaces its queue when the
// transaction is durable.
//
// A session that becomes free is granted to the first waiter and reserved for it. So a session that is free and granted to nobody
// has no waiters. Queues are in memory only: a restart ends the requests that wait.
type queue struct {
	granted string   // name of the waiter for which the free session is reserved; "" for none
	waiting []waiter // never changed in place
}

type waiter struct {
	name        string
	interrupts  bool
	idempotency string        // idempotency key of the request; "" for none
	granted     chan struct{} // nil after it was closed
}

func (q queue) empty() bool { return q.granted == "" && len(q.waiting) == 0 }

func (q queue) index(name string) int {
	return slices.IndexFunc(q.waiting, func(w waiter) bool { return w.name == name })
}

func (w *writing) queue(at ref) queue {
	if q, ok := w.queues[at]; ok {
		return q
	}
	return w.store.queues[at]
}

// grant closes a waiter's channel when the transaction is durable, unless the channel is closed already.
func (w *writing) grant(waiter waiter) {
	if waiter.granted != nil {
		w.grants = append(w.grants, waiter.granted)
	}
}

// mayTake reports whether a waiter may take the session now: no turn is live, and the session is not granted to another waiter.
func (w *writing) mayTake(at ref, session *conversation.Session, name string) bool {
	granted := w.queue(at).granted
	return session.LiveReply == "" && (granted == "" || granted == name)
}

// enqueue adds a waiter to a session's queue: at the end or, if the waiter interrupts, at the head. A waiter that is already
// queued keeps its place. If taken has closed its channel, it gets a new channel.
func (w *writing) enqueue(at ref, session *conversation.Session, who waiter) (*conversation.Queued, error) {
	if who.name == "" {
		return nil, errors.New("embedded: a waiter needs a name")
	}
	q := w.queue(at)
	place := q.index(who.name)
	switch {
	case place >= 0 && q.waiting[place].granted != nil:
		return &conversation.Queued{Granted: q.waiting[place].granted, Live: session.LiveReply}, nil
	case place >= 0:
		q.waiting = slices.Clone(q.waiting)
		q.waiting[place].granted = make(chan struct{})
	case len(q.waiting) >= conversation.QueuePlaces:
		return nil, conversation.ErrSessionBusy
	default:
		if !who.interrupts {
			place = len(q.waiting)
		} else {
			place = 0
		}
		waiting := make([]waiter, 0, len(q.waiting)+1)
		waiting = append(waiting, q.waiting[:place]...)
		who.granted = make(chan struct{})
		waiting = append(waiting, who)
		q.waiting = append(waiting, q.waiting[place:]...)
	}
	w.queues[at] = q
	return &conversation.Queued{Granted: q.waiting[place].granted, Live: session.LiveReply}, nil
}

// taken records that a turn has begun. idempotency is the idempotency key of the turn's request. The session is then granted to
// no waiter. taken wakes the waiters that interrupt, because there is a new reply to cancel. It also wakes the waiters with the
// same key, because their request is done.
func (w *writing) taken(at ref, idempotency string) {
	q := w.queue(at)
	if q.empty() {
		return
	}
	q.granted = ""
	wakes := func(w waiter) bool {
		return w.interrupts || idempotency != "" && w.idempotency == idempotency
	}
	if slices.ContainsFunc(q.waiting, wakes) {
		q.waiting = slices.Clone(q.waiting)
		for i := range q.waiting {
			if wakes(q.waiting[i]) {
				w.grant(q.waiting[i])
				q.waiting[i].granted = nil
			}
		}
	}
	w.queues[at] = q
}

// handOver grants a session that has become free to the next waiter in its queue.
func (w *writing) handOver(at ref) {
	q := w.queue(at)
	if q.empty() {
		return
	}
	q.granted = ""
	if len(q.waiting) > 0 {
		w.grant(q.waiting[0])
		q.granted, q.waiting = q.waiting[0].name, q.waiting[1:]
	}
	w.queues[at] = q
}

// refuse is for a waiter that cannot use the session. If the session is granted to that waiter, refuse grants it to the next
// waiter.
func (w *writing) refuse(at ref, name string) {
	if name != "" && w.queue(at).granted == name {
		w.handOver(at)
	}
}

// dissolve wakes all waiters of a removed session.
func (w *writing) dissolve(at ref) {
	q := w.queue(at)
	if q.empty() {
		return
	}
	for _, waiter := range q.waiting {
		w.grant(waiter)
	}
	w.queues[at] = queue{}
}

// LeaveQueue implements conversation.Store. It waits for the committer, but writes nothing and so causes no sync. It also works
// while the store cannot be written: otherwise, the session could be granted to a waiter that is gone.
func (s *Store) LeaveQueue(ctx context.Context, owner conversation.Owner, sessionID, name string) error {
	op := newOperation(func(w *writing) error {
		w.leave(ref{owner, sessionID}, name)
		return nil
	})
	op.inMemory = true
	return s.runOperation(ctx, op)
}

// leave removes a waiter from the queue. If the session is granted to the waiter, leave grants it to the next waiter.
func (w *writing) leave(at ref, name string) {
	q := w.queue(at)
	if place := q.index(name); place >= 0 {
		q.waiting = slices.Delete(slices.Clone(q.waiting), place, place+1)
		w.queues[at] = q
		return
	}
	w.refuse(at, name)
}
