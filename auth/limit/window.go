package limit

import (
	"math"
	"time"
)

// Second is a time in whole Unix seconds. The methods of this package clamp it to the years 1970 to about 36,800.
type Second int64

// SecondOf returns the second that contains t.
func SecondOf(t time.Time) Second { return Second(t.Unix()) }

const (
	// MaxLimit is the largest limit of a window. A larger limit counts as MaxLimit. It leaves room in 32 bits for an
	// overshoot.
	MaxLimit = 1_000_000_000

	// reach is the age, in seconds, of the oldest bucket that still counts. A period of 60 seconds that ends in the
	// middle of a second begins in the middle of the one 60 earlier, and both count whole.
	reach = 60
	span  = reach + 1

	// WindowReach and MaxTotal export reach and maxTotal for a store whose scripts do the same arithmetic.
	WindowReach = reach
	MaxTotal    = maxTotal

	maxSecond Second = 1 << 40
	maxTotal         = math.MaxInt32 // the largest total of a window, overshoot included; it counts no further
)

// Window counts over the last 60 seconds in buckets of one second. [Window.Take] admits at most the limit in any period
// of 60 seconds. It refuses an amount only if that would exceed the limit with each second counted whole. A count leaves
// the window 61 seconds after its second.
//
// A window takes 264 bytes without pointers, and its zero value is empty. An operation takes at most 61 steps, usually
// one for each second that has passed. The limit is an argument, because it may change at any time. A window is not safe
// for concurrent use: even reading moves its clock.
//
// A window has its own clock, which never runs backwards. If the caller's clock goes back by up to 60 seconds, the
// window's clock waits until the caller's has caught up. If the caller's clock goes back further, somebody has set it:
// the window's clock continues, and every bucket keeps its age. In both cases nothing leaves early, and nothing stays
// longer than 121 seconds. A clock that was set forward has the same effect as waiting.
type Window struct {
	newest Second       // the current second of the window's clock; at least 0
	shift  Second       // the window's clock minus the caller's
	total  uint32       // the sum of counts
	counts [span]uint32 // the buckets from newest-reach to newest; a second's index is the second modulo span
}

// Used returns the total that counts now. It exceeds the limit after an overshoot.
func (w *Window) Used(now Second) int {
	w.advance(now)
	return int(w.total)
}

// Remaining returns the amount that fits now; at least 0.
func (w *Window) Remaining(now Second, limit int) int {
	return max(0, bounded(limit)-w.Used(now))
}

// Take counts n if it fits, otherwise nothing. It reports whether n was counted. An n of 0 or less always fits.
func (w *Window) Take(now Second, n, limit int) bool {
	if n > w.Remaining(now, limit) {
		return false
	}
	w.add(n)
	return true
}

// Charge counts n whether it fits or not, for a cost that is known only afterwards. Later requests wait until enough has
// left.
func (w *Window) Charge(now Second, n int) {
	w.advance(now)
	w.add(n)
}

// Wait returns the whole seconds until n fits: 0 if it fits now, else at least 1. If n exceeds the limit, n never fits
// and ok is false.
func (w *Window) Wait(now Second, n, limit int) (seconds int, ok bool) {
	limit = bounded(limit)
	if n <= 0 {
		return 0, true
	}
	if n > limit {
		return 0, false
	}
	excess := w.Used(now) - (limit - n) // the amount that must leave first
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

// advance moves the window's clock to now and clears the buckets that it passes. If the caller's clock has gone back, the
// window's clock stays.
func (w *Window) advance(now Second) {
	at := clamp(now) + w.shift
	if at < w.newest-reach { // the caller's clock has been set back
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

// oldest returns the first second of the window's clock that still counts.
func (w *Window) oldest() Second { return max(0, w.newest-reach) }

// leaves returns the time, by the caller's clock, at which second s of the window's clock stops counting.
func (w *Window) leaves(s Second) Second { return s + span - w.shift }

// add counts n in the newest second, up to a total of maxTotal.
func (w *Window) add(n int) {
	n = max(0, min(n, maxTotal-int(w.total)))
	w.counts[w.newest%span] += uint32(n)
	w.total += uint32(n)
}

// giveBack takes n off second s of the window's clock, if that still counts.
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
