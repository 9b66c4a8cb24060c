package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
)

// limits holds the counters of the rate limits of all owners. The one-minute windows are in memory only, because storing them
// would need a commit for each request. A restart resets these windows. The daily count of an account's test keys is in the file
// and survives a restart. limits also holds the requests of the last second that the file's usage does not include yet. Its
// methods may be called from any goroutine.
type limits struct {
	mu       sync.Mutex
	counters map[conversation.Owner]*limit.Counters // guarded by mu
	reserved map[string]limit.Reservation           // guarded by mu; reservations of live turns, by reply id
	swept    limit.Second                           // guarded by mu; time at which idle counters were last removed
	requests map[hourAt]int64                       // guarded by mu; admitted requests that are not yet counted in the file
	tick     *time.Timer                            // guarded by mu; calls due; nil if requests is empty
	due      func()                                 // constant; makes the committer add requests to the file's usage
}

// idleEvery is the interval, in seconds, at which idle counters are removed from memory.
const idleEvery = 300

func newLimits(due func()) limits {
	return limits{
		counters: make(map[conversation.Owner]*limit.Counters), reserved: make(map[string]limit.Reservation),
		requests: make(map[hourAt]int64), due: due,
	}
}

// of returns the owner's counters, and creates missing counters. Every idleEvery seconds, it removes the idle counters of all
// owners. The caller must hold mu.
func (l *limits) of(o conversation.Owner, now limit.Second) *limit.Counters {
	if now >= l.swept+idleEvery {
		l.swept = now
		for o, c := range l.counters {
			if c.Idle(now) {
				delete(l.counters, o)
			}
		}
	}
	c := l.counters[o]
	if c == nil {
		c = new(limit.Counters)
		l.counters[o] = c
	}
	return c
}

// admit counts a request, or refuses it with an *auth.LimitError. For a test key, day is the stored daily count of the key's
// account, and admit returns the new count. For a live key, day is zero.
func (l *limits) admit(a *auth.Admission, day limit.Day) (limit.Day, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	c := l.of(ownerOf(a.Principal.Owner()), now)
	c.Day = day
	decision := c.Admit(now, limit.Request{Limits: a.Limits, Test: isTest(a)})
	a.SetDecision(decision)
	if !decision.Admitted() {
		return day, &auth.LimitError{Decision: decision}
	}
	l.note(hourAt{ownerOf(a.Principal.Owner()), usage.Hour(now / 3600)})
	return c.Day, nil
}

// reserve reserves the tokens of a turn, or returns an *auth.LimitError.
func (l *limits) reserve(a *auth.Admission, tokens int) (limit.Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	c := l.of(ownerOf(a.Principal.Owner()), now)
	r, ok := c.Tokens.Reserve(now, tokens, a.Limits.TokensPerMinute)
	if !ok {
		return r, &auth.LimitError{Decision: c.CheckTokens(now, a.Limits, tokens)}
	}
	return r, nil
}

// release cancels the reservation of a turn that did not begin.
func (l *limits) release(o conversation.Owner, r limit.Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	l.of(o, now).Tokens.Release(now, &r)
}

// hold keeps the reservation of a turn that has begun, until settle.
func (l *limits) hold(replyID string, r limit.Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved[replyID] = r
}

// settle replaces the reservation of a turn by the tokens that the turn used. Only the first call for a turn has an effect.
func (l *limits) settle(key conversation.TurnKey, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.reserved[key.ReplyID]
	if !ok {
		return
	}
	delete(l.reserved, key.ReplyID)
	now := limit.SecondOf(time.Now())
	l.of(key.Owner, now).Tokens.Settle(now, &r, used)
}

// charge counts tokens that were used outside a turn, for example by a summary.
func (l *limits) charge(o conversation.Owner, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	l.of(o, now).Tokens.Charge(now, used)
}

func isTest(a *auth.Admission) bool { return a != nil && a.Principal.Mode == auth.Test }

// Admit implements auth.Store.
func (s *Store) Admit(ctx context.Context) error {
	return s.view(ctx, func(*reading) error { return nil })
}

// KeyAlive implements auth.Store.
func (s *Store) KeyAlive(ctx context.Context, p auth.Principal) error {
	found, err := s.KeyByHash(ctx, p.Secret)
	if err == nil && (found.Key.Owner != p.Owner() || found.Key.ID != p.KeyID) {
		err = auth.ErrInvalidToken
	}
	return err
}

// admitTest admits a request of a test key in a separate transaction. So the request counts for the day before it has any effect,
// even if it fails later.
func (s *Store) admitTest(ctx context.Context, a *auth.Admission) error {
	return s.run(ctx, func(w *writing) error {
		if err := w.alive(a); err != nil {
			return err
		}
		account := []byte(a.Principal.Account)
		day, err := w.day(account)
		if err != nil {
			return err
		}
		if !a.Pending() { // the transaction runs again: the request is already counted in memory, but not in the file
			day.Take(limit.SecondOf(w.now.Go()), limit.TestKeyRequestsPerDay)
		} else if day, err = s.limits.admit(a, day); err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(day.Number))
		return w.put(daysBucket, account, binary.BigEndian.AppendUint64(value, uint64(day.Count)))
	})
}

// admit admits a request of a live key, unless the request was admitted or refused before.
func (r *reading) admit(s *Store, a *auth.Admission) error {
	if !a.Pending() {
		return nil
	}
	if err := r.alive(a); err != nil {
		return err
	}
	_, err := s.limits.admit(a, limit.Day{})
	return err
}

// alive returns auth.ErrInvalidToken if the secret of the request has been removed or has expired. The admin key from the
// configuration, which has no hash, is always valid.
func (r *reading) alive(a *auth.Admission) error {
	p := &a.Principal
	if p.Secret == (auth.Hash{}) {
		return nil
	}
	at := r.bucket(secretsBucket).Get(p.Secret[:])
	if !bytes.Equal(at, keyKey(p.Owner(), p.KeyID)) || !p.Until.IsZero() && !r.now.Go().Before(p.Until) {
		return auth.ErrInvalidToken
	}
	return nil
}

// day returns the stored daily count of requests with the account's test keys.
func (r *reading) day(account []byte) (limit.Day, error) {
	value := r.bucket(daysBucket).Get(account)
	switch len(value) {
	case 0:
		return limit.Day{}, nil
	case 16:
		return limit.Day{
			Number: int64(binary.BigEndian.Uint64(value)), Count: int(binary.BigEndian.Uint64(value[8:])),
		}, nil
	}
	return limit.Day{}, errRecord
}
