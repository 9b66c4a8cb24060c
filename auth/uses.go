package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// touchEvery is the delay between the use of a key and the write of its time. One write contains all keys that were used
	// during the delay.
	touchEvery = time.Second
	// touchLimit is the timeout of a write.
	touchLimit = 10 * time.Second
)

// uses collects the times at which keys were used, and writes them in batches. So no request waits for the write. It has a
// timer only while times are pending. The methods of uses may be called from any goroutine.
type uses struct {
	store Store // static

	mu      sync.Mutex
	pending map[usedKey]time.Time // the times that have not been written yet; guarded by mu
	timer   *time.Timer           // nil if no tick is scheduled; guarded by mu
	closed  bool                  // guarded by mu
	ticks   sync.WaitGroup        // counts ticks that are scheduled or running
}

type usedKey struct {
	owner Owner
	id    string
}

// note records that a key was used at the time now.
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
	_ = u.flush(context.Background()) // after an error, the times stay pending until the next use of a key
}

// flush writes the pending times. After an error, they stay pending.
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

// close waits for a running tick, and writes the pending times. After close, note has no effect.
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
