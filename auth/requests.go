package auth

import (
	"context"
	"sync"
	"time"
)

// requests collects how many requests were admitted, so that none waits for it to be written (design section 7: request
// counts are written with the next tick). While nobody calls, nothing runs. Its methods may be called from any
// goroutine.
type requests struct {
	store DayStore // static

	mu      sync.Mutex
	pending map[ownerHour]int64 // guarded by mu
	timer   *time.Timer         // guarded by mu; of the next tick, nil if there is none
	closed  bool                // guarded by mu
	ticks   sync.WaitGroup      // those that are to come or are under way
}

type ownerHour struct {
	owner Owner
	hour  int64
}

const (
	// countEvery is how soon after a request the store is told: one operation for all that were admitted meanwhile.
	countEvery = time.Second
	// countLimit is how long that may take.
	countLimit = 10 * time.Second
)

// note counts a request that was admitted.
func (r *requests) note(owner Owner, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.pending == nil {
		r.pending = make(map[ownerHour]int64)
	}
	r.pending[ownerHour{owner, now.Unix() / 3600}]++
	r.arm()
}

// arm sees to it that there is a next tick; called with mu held.
func (r *requests) arm() {
	if r.timer == nil && !r.closed {
		r.ticks.Add(1)
		r.timer = time.AfterFunc(countEvery, r.tick)
	}
}

func (r *requests) tick() {
	defer r.ticks.Done()
	r.mu.Lock()
	r.timer = nil
	r.mu.Unlock()
	if r.flush(context.Background()) != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.arm() // the store is away: again, until it is back
	}
}

// flush tells the store what is pending. What it does not take stays pending.
func (r *requests) flush(ctx context.Context) error {
	r.mu.Lock()
	pending := r.pending
	r.pending = nil
	r.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	batch := make([]RequestCount, 0, len(pending))
	for at, n := range pending {
		batch = append(batch, RequestCount{Owner: at.owner, Hour: at.hour, N: n})
	}
	ctx, cancel := context.WithTimeout(ctx, countLimit)
	defer cancel()
	err := r.store.CountRequests(ctx, batch)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		for at, n := range r.pending {
			pending[at] += n
		}
		r.pending = pending
	}
	return err
}

// close has what is pending written, and waits for it.
func (r *requests) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil && r.timer.Stop() {
		r.ticks.Done()
	}
	r.mu.Unlock()
	r.ticks.Wait()
	return r.flush(ctx)
}
