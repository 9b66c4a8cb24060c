package bench

import (
	"context"
	"sync"
)

// userID is the user of all sessions of the load generator.
const userID = "user_parleybenchmark0"

// sessionPool hands out sessions, each to one caller at a time. It creates sessions before the measured time, and replaces a
// session after a number of turns, so that the histories stay short.
type sessionPool struct {
	// static
	client *client
	config map[string]any // contextConfig of the sessions; nil for the default
	limit  int            // turns of a session; 0 for no limit

	mu   sync.Mutex
	free []pooled // guarded by mu; the session that was used longest ago comes first
	all  []string // guarded by mu; every session that was created
	late int      // guarded by mu; the sessions that were created after the preparation
}

// pooled is a session with the number of its turns.
type pooled struct {
	id    string
	turns int
}

// create creates a session. It does not put the session into the pool.
func (p *sessionPool) create(ctx context.Context) (pooled, error) {
	var made struct{ SessionID string }
	body := map[string]any{"userId": userID}
	if p.config != nil {
		body["contextConfig"] = p.config
	}
	if err := p.client.do(ctx, "POST", "/v1/sessions", body, &made); err != nil {
		return pooled{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, made.SessionID)
	return pooled{id: made.SessionID}, nil
}

// setupCallers is the number of concurrent requests before and after a run.
const setupCallers = 16

// fill creates n sessions.
func (p *sessionPool) fill(ctx context.Context, n int) error {
	return inParallel(ctx, n, func(ctx context.Context, _ int) error {
		s, err := p.create(ctx)
		if err == nil {
			p.put(s)
		}
		return err
	})
}

// take returns a session that no other caller uses. It creates one if none is free.
func (p *sessionPool) take(ctx context.Context) (pooled, error) {
	p.mu.Lock()
	if len(p.free) > 0 {
		s := p.free[0]
		p.free = p.free[1:]
		p.mu.Unlock()
		return s, nil
	}
	p.late++
	p.mu.Unlock()
	return p.create(ctx)
}

// createdLate returns the number of sessions that were created under load.
func (p *sessionPool) createdLate() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// used gives a session back after a turn.
func (p *sessionPool) used(s pooled) {
	if s.turns++; p.limit == 0 || s.turns < p.limit {
		p.put(s)
	}
}

func (p *sessionPool) put(s pooled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
}

// remove deletes all sessions that the pool has created. Sessions that it cannot delete expire after a day.
func (p *sessionPool) remove(ctx context.Context) {
	p.mu.Lock()
	all := p.all
	p.mu.Unlock()
	_ = inParallel(ctx, len(all), func(ctx context.Context, i int) error {
		return p.client.do(ctx, "DELETE", "/v1/sessions/"+all[i], nil, nil)
	})
}

// inParallel calls do for 0 to n-1, setupCallers at a time. It returns the first error, and stops there.
func inParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var work sync.WaitGroup
	for range min(n, setupCallers) {
		work.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	work.Wait()
	return context.Cause(ctx)
}
