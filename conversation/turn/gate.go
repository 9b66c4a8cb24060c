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
	// maxCalls is the number of calls of BeginTurn and EndTurn that run at the same time for a group of owners, if several nodes
	// share the store. A call takes less than a millisecond of such a store, so more calls would only wait inside the client of the
	// store, whose timeout then ends them although the store works. The embedded store has no such timeout, and commits all waiting
	// calls together.
	maxCalls = 32
	// gateGroups is the number of groups of owners. If one server of a Cluster fails, the calls for its owners occupy their gates
	// until their timeouts. Owners of other groups are not affected.
	gateGroups = 64
)

// gates holds the gate of each group of owners.
type gates struct {
	seed   maphash.Seed     // static
	groups [gateGroups]gate // static
}

// newGates returns gates. If limited is not set, any number of calls may run at the same time.
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

// gate bounds the calls of the store that run at the same time, and notes whether the store responds. The methods may be called
// from any goroutine.
type gate struct {
	// static
	created time.Time
	calls   chan struct{} // holds a value for each running call; nil for any number of calls

	// The times from created until the last call that the store responded to, and until the last call that it did not, in
	// nanoseconds.
	responded, failed atomic.Int64
}

// errNotCalled wraps ErrStoreBusy: the store has not been called.
var errNotCalled = fmt.Errorf("%w: the store was not called", conversation.ErrStoreBusy)

// call runs a call of the store when fewer than maxCalls run, and returns the error of the call. While the store responds to other
// calls, call waits up to queueTimeout. It returns errNotCalled if the store does not respond for the timeout.
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

// enter waits until fewer than maxCalls calls run. It also returns errNotCalled if a call has failed meanwhile, and the store is
// silent. The next call would fail too, and its caller would wait for the timeout of the store a second time.
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

// note notes whether the store has responded to a call that returned err. A caller that left tells nothing about the store.
func (g *gate) note(err error) {
	now := int64(time.Since(g.created))
	switch {
	case errors.Is(err, conversation.ErrUnavailable):
		g.failed.Store(now)
	case !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded):
		g.responded.Store(now)
	}
}

// patience returns for how much longer somebody who waits since a time should wait; 0 or less for no longer. While the store
// responds to calls, the wait may take queueTimeout: after thousands of sends at once, a store needs many seconds. Otherwise, it may
// take the timeout.
func (g *gate) patience(since time.Time, timeout time.Duration) time.Duration {
	waited := time.Since(since)
	return min(timeout-min(waited, g.silence()), queueTimeout-waited)
}

// silence returns the time since the store last responded to a call.
func (g *gate) silence() time.Duration {
	return time.Since(g.created) - time.Duration(g.responded.Load())
}
