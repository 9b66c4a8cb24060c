package limit

import (
	"math"
	"time"
)

// Second is a time in whole Unix seconds, clamped to the years 1970 to 36,000 or so.
type Second int64

// SecondOf returns the second that contains t.
func SecondOf(t time.Time) Second { return Second(t.Unix()) }

const (
	// MaxLimit is the largest limit of a window; a larger one counts as this. It leaves room in 32 bits for an overshoot.
	MaxLimit = 1_000_000_000

	// reach is how many seconds back a bucket still counts: 60 seconds that end inside a second begin inside the one 60
	// earlier, so that one counts whole.
	reach = 60
	span  = reach + 1

	// WindowReach and MaxTotal are reach and maxTotal for a store whose scripts do the same arithmetic.
	WindowReach = reach
	MaxTotal    = maxTotal

	maxSecond Second = 1 << 40
	maxTotal         = math.MaxInt32 // the most that a window counts, overshoot included; more is not counted
)

// Window counts over the last 60 seconds in buckets of one second. What is taken from it never exceeds the limit in any 60
// seconds on end, and it refuses only what would exceed the limit if each second counted whole. What is counted in a
// second leaves 61 seconds later.
//
// It takes 264 bytes without pointers, and its zero value is empty. An operation takes at most 61 steps, usually one for
// each second that has passed. The limit is an argument, since it may change at any time. A window is not safe for
// concurrent use; even reading moves its clock.
//
// Its own clock never runs backwards. If the caller's clock goes back by up to 60 seconds, the window stands still until it
// has caught up. If it goes back further, the clock was set: the window goes on with everything as old as before. In both
// cases nothing leaves early, and nothing stays longer than 121 seconds. A clock that was set forward looks the same as
// waiting.
type Window struct {
	newest Second       // of its own clock; at least 0
	shift  Second       // its own clock minus the caller's
	total  uint32       // the sum of counts
	counts [span]uint32 // the buckets from newest-reach to newest, at their second modulo span
}

// Used returns what counts now. It exceeds the limit after an overshoot.
func (w *Window) Used(now Second) int {
	w.advance(now)
	return int(w.total)
}

// Remaining returns how much fits now; at least 0.
func (w *Window) Remaining(now Second, limit int) int {
	return max(0, bounded(limit)-w.Used(now))
}

// Take counts n if it fits, else nothing, and reports whether it did. An n of 0 or less always fits.
func (w *Window) Take(now Second, n, limit int) bool {
	if n > w.Remaining(now, limit) {
		return false
	}
	w.add(n)
	return true
}

// Charge counts n whether it fits or not, for a cost that is known only afterwards. Later requests wait until it leaves.
func (w *Window) Charge(now Second, n int) {
	w.advance(now)
	w.add(n)
}

// Wait returns the whole seconds until n fits: 0 if it fits now, else at least 1. If n exceeds the limit, it never fits and
// ok is false.
func (w *Window) Wait(now Second, n, limit int) (seconds int, ok bool) {
	limit = bounded(limit)
	if n <= 0 {
		return 0, true
	}
	if n > limit {
		return 0, false
	}
	excess := w.Used(now) - (limit - n) // what must leave
	if excess <= 0 {
		return 0, true
	}
	for s := w.oldest(); ; s++ {
		if excess -= int(w.counts[s%span]); excess <= 0 {
			return int(w.leaves(s) - clamp(now)), true
		}
	}
}

// Reset returns when the oldest bucket leaves, the first moment at which more fits; now if nothing counts.
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

// advance moves the window's clock to now and clears the buckets that it passes. The clock may also stand.
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

// oldest returns the first second of its own clock that still counts.
func (w *Window) oldest() Second { return max(0, w.newest-reach) }

// leaves returns when a second of its own clock stops counting, by the caller's clock.
func (w *Window) leaves(s Second) Second { return s + span - w.shift }

// add counts n in the newest second.
func (w *Window) add(n int) {
	n = max(0, min(n, maxTotal-int(w.total)))
	w.counts[w.newest%span] += uint32(n)
	w.total += uint32(n)
}

// giveBack takes n off the second of its own clock in which it was counted, if that still counts.
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
