package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// touchEvery is the delay before times of last use are written: one operation for all keys that were used in a
	// second.
	touchEvery = time.Second
	// touchLimit is the timeout of that write.
	touchLimit = 10 * time.Second
)

// uses collects the times of last use of keys, so that no request waits for their write. It has a timer only while uses
// are pending. Its methods may be called from any goroutine.
type uses struct {
	store Store // static

	mu      sync.Mutex
	pending map[usedKey]time.Time // guarded by mu
	timer   *time.Timer           // guarded by mu; nil if no tick is scheduled
	closed  bool                  // guarded by mu
	ticks   sync.WaitGroup        // ticks that are scheduled or running
}

type usedKey struct {
	owner Owner
	id    string
}

// note records that a key was used.
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
	_ = u.flush(context.Background()) // after an error, the next use schedules another attempt
}

// flush writes the pending uses. After an error they stay pending.
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

// close waits for the running tick and writes the pending uses.
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
