package turn

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"parley/conversation"
)

const (
	// maxCalls is the number of calls of BeginTurn and EndTurn that run at the same time for a group of owners, if
	// several nodes share the store. Such a store handles a call in less than a millisecond. More calls would only wait
	// inside the store's client, and the client's timeout would end them although the store works. The embedded store
	// has no such timeout, and commits all waiting calls together.
	maxCalls = 32
	// gateGroups is the number of groups of owners. If one server of a Cluster fails, calls for the owners on that
	// server occupy the gates of their groups until the calls time out. Owners in other groups are not affected.
	gateGroups = 64
)

// gates holds the gate of each group of owners.
type gates struct {
	seed   maphash.Seed     // static
	groups [gateGroups]gate // static
}

// newGates returns a gate for each group of owners. If limited is false, any number of calls may run at the same time.
func newGates(limited bool) *gates {
	g := &gates{seed: maphash.MakeSeed()}
	for i := range g.groups {
		g.groups[i].created = time.Now()
		if limited {
			g.groups[i].calls = make(chan struct{}, maxCalls)
		}
	}
	return g
}

func (g *gates) of(owner conversation.Owner) *gate {
	return &g.groups[maphash.Comparable(g.seed, owner)%gateGroups]
}

// gate bounds the number of calls of the store that run at the same time, and records when the store responded. The
// methods may be called from any goroutine.
type gate struct {
	// static
	created time.Time
	calls   chan struct{} // holds a value for each running call; nil for any number of calls

	// responded is the time of the last call to which the store responded. failed is the time of the last call that
	// failed with ErrUnavailable. Both are in nanoseconds since created.
	responded, failed atomic.Int64
}

// errNotCalled wraps ErrStoreBusy: the gate has refused the call, so the store was not called.
var errNotCalled = fmt.Errorf("%w: the store was not called", conversation.ErrStoreBusy)

// call runs do, a call of the store, when fewer than maxCalls calls run. It returns the error of do. While the store
// responds to other calls, call waits up to queueTimeout. If the store responds to no call for the timeout, call
// returns errNotCalled.
func (g *gate) call(ctx context.Context, timeout time.Duration, do func() error) (err error) {
	if g.calls != nil {
		if err := g.enter(ctx, timeout); err != nil {
			return err
		}
		defer func() { <-g.calls }()
	}
	defer func() { g.note(err) }()
	return do()
}

// enter waits until fewer than maxCalls calls run. It returns errNotCalled if the store responds to no call for the
// timeout, or if a call has failed during the wait and the store was silent for half the timeout. The next call would
// fail too, and its caller would wait for a second timeout.
func (g *gate) enter(ctx context.Context, timeout time.Duration) error {
	select {
	case g.calls <- struct{}{}:
		return nil
	default:
	}
	began := time.Now()
	for patience := timeout; patience > 0; patience = g.patience(began, timeout) {
		select {
		case g.calls <- struct{}{}:
			if g.failed.Load() > int64(began.Sub(g.created)) && g.silence() > timeout/2 {
				<-g.calls
				return errNotCalled
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
		}
	}
	return errNotCalled
}

// note records whether the store responded to a call that returned err. If the caller left, err says nothing about the
// store.
func (g *gate) note(err error) {
	now := int64(time.Since(g.created))
	switch {
	case errors.Is(err, conversation.ErrUnavailable):
		g.failed.Store(now)
	case !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		g.responded.Store(now)
	}
}

// patience returns how much longer a caller that waits since the time since should wait; 0 or less means no longer.
// While the store responds to calls, the whole wait may take queueTimeout, because thousands of sends at once keep a
// store busy for many seconds. Otherwise, the whole wait may take timeout.
func (g *gate) patience(since time.Time, timeout time.Duration) time.Duration {
	waited := time.Since(since)
	return min(timeout-min(waited, g.silence()), queueTimeout-waited)
}

// silence returns the time since the store last responded to a call, or since the gate was created.
func (g *gate) silence() time.Duration {
	return time.Since(g.created) - time.Duration(g.responded.Load())
}
