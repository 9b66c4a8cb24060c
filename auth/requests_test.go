package auth

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth/limit"
)

// ledger is a DayStore in memory that fails when it is told to.
type ledger struct {
	mu    sync.Mutex
	days  map[string]limit.Day
	hours map[ownerHour]int64
	calls int
	away  error // of CountRequests
	full  error // of CountTestDay
}

func (l *ledger) TestDay(_ context.Context, account string) (limit.Day, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.days[account], nil
}

func (l *ledger) CountTestDay(_ context.Context, account string, day limit.Day) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full == nil {
		l.days[account] = day
	}
	return l.full
}

func (l *ledger) CountRequests(_ context.Context, counts []RequestCount) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.away != nil {
		return l.away
	}
	for _, c := range counts {
		l.hours[ownerHour{c.Owner, c.Hour}] += c.N
	}
	return nil
}

func (l *ledger) set(away, full error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.full = away, full
}

// want checks what was counted, and by how many calls.
func (l *ledger) want(t *testing.T, when string, calls int, hours map[ownerHour]int64) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls != calls || !maps.Equal(l.hours, hours) {
		t.Errorf("%s: by %d calls %v, want by %d %v", when, l.calls, l.hours, calls, hours)
	}
}

func TestRequestsThatAreAdmittedAreCountedWithTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tiers, err := limit.ParseTiers(`{"pro":{"requestsPerMinute":10}}`)
		if err != nil {
			t.Fatal(err)
		}
		store := &ledger{days: make(map[string]limit.Day), hours: make(map[ownerHour]int64)}
		limits := NewLimits(tiers, store)
		live, test := Principal{Account: "acme", Mode: Live, Tier: limit.Pro}, Principal{Account: "acme", Mode: Test, Tier: limit.Pro}
		admit := func(p Principal, times int) {
			t.Helper()
			for range times {
				if _, err := limits.Admit(t.Context(), p); err != nil && !errors.Is(err, store.full) {
					t.Fatal(err)
				}
			}
		}
		admit(live, 12) // the last two are refused
		admit(test, 3)
		store.set(nil, errors.New("full"))
		admit(test, 2) // not durable, so not admitted
		store.want(t, "at once", 0, map[ownerHour]int64{})
		first := time.Now().Unix() / 3600
		time.Sleep(countEvery)
		want := map[ownerHour]int64{{live.Owner(), first}: 10, {test.Owner(), first}: 3}
		store.want(t, "after a tick", 1, want)
		time.Sleep(time.Hour)
		store.want(t, "while nobody calls", 1, want)

		away := errors.New("away")
		store.set(away, nil)
		admit(live, 2)
		time.Sleep(countEvery)
		store.want(t, "while the store is away", 2, want)
		admit(live, 1)
		time.Sleep(countEvery)
		store.want(t, "while it is away still", 3, want)
		store.set(nil, nil)
		time.Sleep(countEvery)
		want[ownerHour{live.Owner(), first + 1}] = 3
		store.want(t, "when it is back", 4, want)

		admit(live, 1)
		if err := limits.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want[ownerHour{live.Owner(), first + 1}] = 4
		store.want(t, "with Close", 5, want)
		admit(live, 1)
		time.Sleep(time.Hour)
		store.want(t, "after it", 5, want)
	})
}
