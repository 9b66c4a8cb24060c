package auth

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"parley/auth/limit"
)

// DayStore keeps what is counted of requests for longer than a minute: the day's count of test keys, which a restart must
// not forgive, and the hours' counts, for the usage report. Its methods may be called from any goroutine.
type DayStore interface {
	// TestDay returns what was last counted for an account; the zero value if nothing was.
	TestDay(ctx context.Context, account string) (limit.Day, error)
	// CountTestDay makes a count durable. Of the same day, the higher count stays; of two days, the later.
	CountTestDay(ctx context.Context, account string, day limit.Day) error
	// CountRequests adds to the counts of hours, all or none of them. They are part of what conversation.Store's Usage
	// returns.
	CountRequests(ctx context.Context, counts []RequestCount) error
}

// RequestCount is how many requests of an owner were admitted in an hour.
type RequestCount struct {
	Owner Owner
	Hour  int64 // UTC, numbered from 1970 on, as usage.Hour has it
	N     int64
}

// Limits admits requests and reserves tokens (design section 6), for each account and mode. The minutes' windows are in
// this process' memory, the days of test keys in the store too. What is admitted is counted for the usage report, by the
// store's next tick. Its methods may be called from any goroutine, until Close.
type Limits struct {
	// static
	tiers    limit.Tiers
	days     DayStore
	requests *requests

	mu       sync.Mutex
	counters map[tenant]*limit.Counters // guarded by mu
	swept    limit.Second               // guarded by mu
	failures *limit.Failures            // guarded by mu
}

// tenant is what has limits of its own: an account in a mode.
type tenant struct{ account, mode string }

// sweepEvery is how often, in seconds, counters that count nothing are forgotten.
const sweepEvery = 300

// NewLimits returns limits with the tiers' figures, all empty.
func NewLimits(tiers limit.Tiers, days DayStore) *Limits {
	return &Limits{
		tiers: tiers, days: days, requests: &requests{store: days}, counters: make(map[tenant]*limit.Counters), failures: limit.NewFailures(),
	}
}

// Admit counts a request of the principal, or says which limit refuses it. A test key's day is durable before it
// returns; the store's error means that the request was not counted.
func (l *Limits) Admit(ctx context.Context, p Principal) (limit.Decision, error) {
	t := tenant{p.Account, p.Mode}
	if err := l.load(ctx, t); err != nil {
		return limit.Decision{}, err
	}
	now := limit.At(time.Now())
	l.mu.Lock()
	c := l.of(t)
	decision := c.Admit(now, limit.Request{Figures: l.Figures(p), Test: p.isTest()})
	day := c.Day
	l.mu.Unlock()
	if !decision.Admitted() {
		return decision, nil
	}
	if !p.isTest() {
		l.requests.note(p.Owner(), time.Now())
		return decision, nil
	}
	if err := l.days.CountTestDay(ctx, p.Account, day); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.of(t).Withdraw(now, &decision)
		return limit.Decision{}, err
	}
	l.requests.note(p.Owner(), time.Now())
	return decision, nil
}

// Close has the requests that were admitted counted by the store, and waits for it. What is admitted later is not counted.
func (l *Limits) Close(ctx context.Context) error { return l.requests.close(ctx) }

// Standing returns the figures of an address, and counts nothing.
func (l *Limits) Standing(from netip.Addr) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Check(limit.At(time.Now()), from)
}

// Fail counts a failed authentication from an address: the decision says whether there was room for it.
func (l *Limits) Fail(from netip.Addr) limit.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures.Fail(limit.At(time.Now()), from)
}

// Tokens returns an allowance that nothing was reserved of yet.
func (l *Limits) Tokens(p Principal) *Tokens { return &Tokens{limits: l, principal: p} }

// of returns a tenant's counters; called with mu held.
func (l *Limits) of(t tenant) *limit.Counters {
	c := l.counters[t]
	if c == nil {
		c = new(limit.Counters)
		l.counters[t] = c
	}
	return c
}

// load has the counters of a test tenant begin with what the store has counted of its day.
func (l *Limits) load(ctx context.Context, t tenant) error {
	l.mu.Lock()
	l.sweep()
	known := l.counters[t] != nil
	l.mu.Unlock()
	if known || t.mode != "test" {
		return nil
	}
	day, err := l.days.TestDay(ctx, t.account)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counters[t] == nil { // else another request was first
		l.of(t).Day = day
	}
	return nil
}

// sweep forgets the counters that count nothing now and then; called with mu held.
func (l *Limits) sweep() {
	now := limit.At(time.Now())
	if now < l.swept+sweepEvery {
		return
	}
	l.swept = now
	for t, c := range l.counters {
		if c.Idle(now) && c.Day.Used(now) == 0 {
			delete(l.counters, t)
		}
	}
}

// Figures returns the figures of a principal's tier, those of free if there is no such tier.
func (l *Limits) Figures(p Principal) limit.Figures {
	f, ok := l.tiers.Figures(p.Tier)
	if !ok {
		f, _ = l.tiers.Figures(limit.Free)
	}
	return f
}

func (p Principal) isTest() bool { return p.Mode == "test" }

// Tokens is the allowance of one send: reserved when its turn begins, settled when it is over.
type Tokens struct {
	// static
	limits    *Limits
	principal Principal

	// guarded by limits.mu
	reserved bool
	taken    limit.Reservation
}

// LimitError says which limit refuses.
type LimitError struct{ Decision limit.Decision }

func (e *LimitError) Error() string {
	return "the limit of " + e.Decision.Refused.String() + " is reached"
}

// Reserve reserves tokens, or returns a *LimitError. Reserving again what is reserved already does nothing.
func (t *Tokens) Reserve(tokens int) error {
	l, now := t.limits, limit.At(time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.reserved {
		return nil
	}
	c, figures := l.of(tenant{t.principal.Account, t.principal.Mode}), l.Figures(t.principal)
	taken, ok := c.Tokens.Reserve(now, tokens, figures.TokensPerMinute)
	if !ok {
		return &LimitError{c.CheckTokens(now, figures, tokens)}
	}
	t.reserved, t.taken = true, taken
	return nil
}

// Settle replaces what was reserved by what was used. Only the first call does anything.
func (t *Tokens) Settle(used int) {
	l, now := t.limits, limit.At(time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.reserved {
		l.of(tenant{t.principal.Account, t.principal.Mode}).Tokens.Settle(now, &t.taken, used)
	}
}
