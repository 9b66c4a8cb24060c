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

// limits are the minutes' windows, which are in memory only, the days of test keys as they are in the file (design
// sections 6 and 7), and the requests of the last second that the file has not counted yet. Its methods may be called from
// any goroutine.
type limits struct {
	mu       sync.Mutex
	counters map[conversation.Owner]*limit.Counters // guarded by mu
	reserved map[string]limit.Reservation           // guarded by mu; of live turns, by the reply's id
	swept    limit.Second                           // guarded by mu
	requests map[hourAt]int64                       // guarded by mu; admitted, and not yet counted in the file
	tick     *time.Timer                            // guarded by mu; of the next count, nil if there is none
	due      func()                                 // static; has them counted
}

// idleEvery is how often, in seconds, counters that count nothing are forgotten.
const idleEvery = 300

func newLimits(due func()) limits {
	return limits{
		counters: make(map[conversation.Owner]*limit.Counters), reserved: make(map[string]limit.Reservation),
		requests: make(map[hourAt]int64), due: due,
	}
}

// of returns an owner's counters; called with mu held.
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

// admit counts a request, or refuses it. day is what the file has counted for a test key's account; the new count is
// returned.
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

// reserve reserves the tokens of a turn.
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

// release gives back what was reserved for a turn that has not begun after all.
func (l *limits) release(o conversation.Owner, r limit.Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	l.of(o, now).Tokens.Release(now, &r)
}

// hold keeps the reservation of a turn that has begun until settle.
func (l *limits) hold(messageID string, r limit.Reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved[messageID] = r
}

// settle replaces what was reserved for a turn by what it used. Only the first call for a turn does anything.
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

// charge counts tokens that were used beside any turn.
func (l *limits) charge(o conversation.Owner, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	l.of(o, now).Tokens.Charge(now, used)
}

func isTest(a *auth.Admission) bool { return a != nil && a.Principal.Mode == auth.Test }

// Admit implements auth.Store: an operation that does nothing else.
func (s *Store) Admit(ctx context.Context) error {
	return s.view(ctx, func(*reading) error { return nil })
}

// KeyAlive implements auth.Store.
func (s *Store) KeyAlive(ctx context.Context, p auth.Principal) error {
	_, err := s.KeyByHash(ctx, p.Secret)
	return err
}

// admitTest admits a test key's request in a transaction of its own: its day is durable before the request does
// anything, and whatever that is.
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
		if !a.Pending() { // it is run again: in memory the request is counted
			day.Take(limit.SecondOf(w.now.Go()), limit.TestKeyRequestsPerDay)
		} else if day, err = s.limits.admit(a, day); err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(day.Number))
		return w.put(daysBucket, account, binary.BigEndian.AppendUint64(value, uint64(day.Count)))
	})
}

// admit admits the request of a live key, if it is pending.
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

// alive reports whether the key of a request works: the declared one always does.
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

// day returns what the file has counted of an account's test keys.
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
