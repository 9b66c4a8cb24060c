package limit

import (
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a simple reference implementation of Window. It keeps all entries, and adds them up in each call.
type ledger struct {
	entries []entry
	clock   Second // the ledger's clock, which never goes back
	behind  Second // the ledger's clock minus the caller's clock, if the caller's clock was set back; else 0
}

type entry struct {
	second Second
	n      int
}

// tick moves the ledger's clock to the caller's time now, unless the caller's clock has gone back. It returns the time of
// the ledger's clock.
func (l *ledger) tick(now Second) Second {
	switch at := now + l.behind; {
	case at > l.clock:
		l.clock = at
	case at < l.clock-60:
		l.behind = l.clock - now
	}
	return l.clock
}

func (l *ledger) used(at Second) (sum int) {
	for _, e := range l.entries {
		if e.second >= at-60 && e.second <= at {
			sum += e.n
		}
	}
	return sum
}

func (l *ledger) add(n int) int {
	l.entries = append(l.entries, entry{l.clock, n})
	return len(l.entries) - 1
}

// wait returns the number of seconds until n fits. It tries each second after now, by the caller's clock.
func (l *ledger) wait(now Second, n, limit int) int {
	at := l.tick(now)
	for k := Second(0); ; k++ {
		if l.used(max(at, now+l.behind+k))+n <= limit {
			return int(k)
		}
	}
}

// reset returns the first time at which the total becomes smaller, by the caller's clock. If the total is 0, it returns now.
func (l *ledger) reset(now Second) Second {
	at := l.tick(now)
	for k := Second(1); l.used(at) > 0; k++ {
		if later := max(at, now+l.behind+k); l.used(later) < l.used(at) {
			return now + k
		}
	}
	return now
}

// gaps generates times between two requests, in milliseconds. Some are close to a whole second or to a whole minute.
func gaps() *rapid.Generator[int] {
	return rapid.OneOf(
		rapid.Just(0), rapid.IntRange(0, 50), rapid.IntRange(0, 3_000), rapid.SampledFrom([]int{999, 1_000, 1_001}),
		rapid.IntRange(58_000, 63_000), rapid.SampledFrom([]int{59_999, 60_000, 60_001, 60_999, 61_000, 61_001}),
		rapid.IntRange(60_000, 200_000), rapid.Just(1_000_000_000),
	)
}

// steps generates steps of the caller's clock, in seconds. Some steps are negative.
func steps() *rapid.Generator[int] {
	return rapid.OneOf(
		rapid.IntRange(0, 3), rapid.IntRange(0, 70), rapid.IntRange(-3, 3), rapid.IntRange(-65, -55),
		rapid.IntRange(-200, 200), rapid.SampledFrom([]int{-61, -60, -59, 60, 61, -100_000, 100_000}),
	)
}

const noon Second = 1_800_000_000 // a multiple of 60

// equal fails the test if got is not want. what describes the value.
func equal[T comparable](t rapid.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
