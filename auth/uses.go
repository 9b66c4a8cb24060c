package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// touchEvery is how soon after a key was used the store is told: one operation for all that were used meanwhile.
	touchEvery = time.Second
	// touchLimit is how long that may take.
	touchLimit = 10 * time.Second
)

// uses collects when keys were used, so that no request waits for it to be written (design section 7: lastUsedAt is
// written with the next tick). While nobody calls, nothing runs. Its methods may be called from any goroutine.
type uses struct {
	store Store // static

	mu      sync.Mutex
	pending map[usedKey]time.Time // guarded by mu
	timer   *time.Timer           // guarded by mu; of the next tick, nil if there is none
	closed  bool                  // guarded by mu
	ticks   sync.WaitGroup        // those that are to come or are under way
}

type usedKey struct {
	owner Owner
	id    string
}

// note notes that a key is used.
func (u *uses) note(owner Owner, keyID string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	if u.pending == nil {
		u.pending = make(map[usedKey]time.Time)
	}
	u.pending[usedKey{owner, keyID}] = now
	if u.timer == nil {
		u.ticks.Add(1)
		u.timer = time.AfterFunc(touchEvery, u.tick)
	}
}

func (u *uses) tick() {
	defer u.ticks.Done()
	u.mu.Lock()
	u.timer = nil
	u.mu.Unlock()
	_ = u.flush(context.Background()) // if the store is away: with the next use
}

// flush tells the store what is pending. What it does not take stays pending.
func (u *uses) flush(ctx context.Context) error {
	u.mu.Lock()
	pending := u.pending
	u.pending = nil
	u.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	batch := make([]KeyUse, 0, len(pending))
	for key, at := range pending {
		batch = append(batch, KeyUse{Owner: key.owner, KeyID: key.id, At: at.UTC().Truncate(time.Millisecond)})
	}
	ctx, cancel := context.WithTimeout(ctx, touchLimit)
	defer cancel()
	err := u.store.TouchKeys(ctx, batch)
	if err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		for key, at := range u.pending {
			pending[key] = at
		}
		u.pending = pending
	}
	return err
}

// close has what is pending written, and waits for it.
func (u *uses) close(ctx context.Context) error {
	u.mu.Lock()
	u.closed = true
	if u.timer != nil && u.timer.Stop() {
		u.ticks.Done()
	}
	u.mu.Unlock()
	u.ticks.Wait()
	return u.flush(ctx)
}
