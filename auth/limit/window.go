package limit

import (
	"math"
	"time"
)

// Second is a time in whole Unix seconds. The methods of this package replace a time before 1970 by 1970, and a time after
// about the year 36,800 by that year.
type Second int64

// SecondOf returns the second that contains t.
func SecondOf(t time.Time) Second { return Second(t.Unix()) }

const (
	// MaxLimit is the largest limit of a window. A larger limit counts as MaxLimit. It is less than half of maxTotal, so
	// that a total can exceed the limit.
	MaxLimit = 1_000_000_000

	// reach is the age, in seconds, of the oldest bucket that still counts. A period of 60 seconds may begin and end in the
	// middle of a second, so it touches 61 seconds.
	reach = 60
	span  = reach + 1 // number of buckets

	// WindowReach and MaxTotal are reach and maxTotal. A store needs them if its scripts do the same arithmetic.
	WindowReach = reach
	MaxTotal    = maxTotal

	maxSecond Second = 1 << 40
	maxTotal         = math.MaxInt32 // the largest total of a window; further amounts are not counted
)

// Window counts amounts over the last 60 seconds, in buckets of one second. [Window.Take] admits at most the limit in any
// period of 60 seconds. To ensure this, a count leaves the window 61 seconds after its second.
//
// A window takes 264 bytes without pointers, and its zero value is empty. An operation takes at most 61 steps, usually
// one step for each second since the last operation. The limit is an argument, because it may change at any time. A window
// is not safe for concurrent use: even Used moves its clock.
//
// A window has its own clock, which never goes back. If the caller's clock goes back by up to 60 seconds, the window's
// clock stops until the caller's clock has caught up. If the caller's clock goes back further, somebody has set it. The
// window's clock then goes on from its own time, and every bucket keeps its age. In both cases, no count leaves the window
// early, and no count stays longer than 121 seconds. If the caller's clock is set forward, the window's clock follows.
type Window struct {
	newest Second       // the current second of the window's clock; at least 0
	shift  Second       // the window's clock minus the caller's clock
	total  uint32       // the sum of counts
	counts [span]uint32 // the buckets from newest-reach to newest; the bucket of second s has the index s % span
}

// Used returns the total of the window. It is greater than the limit if Charge or Settle has exceeded the limit.
func (w *Window) Used(now Second) int {
	w.advance(now)
	return int(w.total)
}

// Remaining returns the amount that fits now; at least 0.
func (w *Window) Remaining(now Second, limit int) int {
	return max(0, bounded(limit)-w.Used(now))
}

// Take counts n and returns true if n fits. Otherwise it counts nothing and returns false. An n of 0 or less always fits.
func (w *Window) Take(now Second, n, limit int) bool {
	if n > w.Remaining(now, limit) {
		return false
	}
	w.add(n)
	return true
}

// Charge counts n, even if n does not fit, for a cost that is known only afterwards. Later requests may have to wait.
func (w *Window) Charge(now Second, n int) {
	w.advance(now)
	w.add(n)
}

// Wait returns the number of seconds until n fits: 0 if n fits now, else at least 1. If n is greater than the limit, n
// never fits, and ok is false.
func (w *Window) Wait(now Second, n, limit int) (seconds int, ok bool) {
	limit = bounded(limit)
	if n <= 0 {
		return 0, true
	}
	if n > limit {
		return 0, false
	}
	excess := w.Used(now) - (limit - n) // the amount that must leave the window before n fits
	if excess <= 0 {
		return 0, true
	}
	for s := w.oldest(); ; s++ {
		if excess -= int(w.counts[s%span]); excess <= 0 {
			return int(w.leaves(s) - clamp(now)), true
		}
	}
}

// Reset returns the time at which the oldest non-empty bucket leaves the window and frees capacity. If the window is
// empty, it returns now.
func (w *Window) Reset(now Second) Second {
	if w.Used(now) == 0 {
		return clamp(now)
	}
	s := w.oldest()
	for w.counts[s%span] == 0 {
		s++
	}
	return w.leaves(s)
}

// advance moves the window's clock to now, and clears the buckets that leave the window. If the caller's clock has gone
// back, the window's clock does not move.
func (w *Window) advance(now Second) {
	at := clamp(now) + w.shift
	if at < w.newest-reach { // the caller's clock was set back
		w.shift += w.newest - at
		return
	}
	if at <= w.newest {
		return
	}
	if w.total > 0 {
		for s := max(w.newest+1, at-reach); s <= at; s++ {
			w.total -= w.counts[s%span]
			w.counts[s%span] = 0
		}
	}
	w.newest = at
}

// oldest returns the second of the oldest bucket, by the window's clock.
func (w *Window) oldest() Second { return max(0, w.newest-reach) }

// leaves returns the time at which the bucket of second s leaves the window. s is by the window's clock, and the result is
// by the caller's clock.
func (w *Window) leaves(s Second) Second { return s + span - w.shift }

// add adds n to the newest bucket, up to a total of maxTotal.
func (w *Window) add(n int) {
	n = max(0, min(n, maxTotal-int(w.total)))
	w.counts[w.newest%span] += uint32(n)
	w.total += uint32(n)
}

// giveBack subtracts n from the bucket of second s, by the window's clock. If that bucket has left the window, giveBack has
// no effect.
func (w *Window) giveBack(s Second, n int) {
	if s < w.oldest() || s > w.newest || n <= 0 {
		return
	}
	n = min(n, int(w.counts[s%span]))
	w.counts[s%span] -= uint32(n)
	w.total -= uint32(n)
}

func bounded(limit int) int { return min(max(limit, 0), MaxLimit) }

func clamp(now Second) Second { return min(max(now, 0), maxSecond) }
