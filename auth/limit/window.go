package limit

import (
	"math"
	"time"
)

// Second is a time in whole Unix seconds. A time before 1970, or after the year 36,000, counts as that end.
type Second int64

// At is the second in which t lies.
func SecondOf(t time.Time) Second { return Second(t.Unix()) }

const (
	// MaxLimit is the largest limit of a window; a larger one counts as this.
	MaxLimit = 1_000_000_000

	// reach is how far back, in seconds, what was counted still counts: sixty seconds that end within a second begin
	// within the one sixty earlier, which therefore counts whole.
	reach = 60
	span  = reach + 1

	maxSecond Second = 1 << 40
	maxTotal         = math.MaxInt32 // of a window, over its limit included; what is charged beyond is forgiven
)

// Window counts over the last 60 seconds, to one second's granularity: whatever has been taken from it never exceeds
// the limit in any 60 seconds on end, and nothing is refused that would keep to that if each second counted whole
// (design section 6). What was counted in a second leaves 61 seconds later.
//
// It is 264 bytes, holds no pointers, and its zero value is empty. Every operation takes constant time: at most 61
// steps, and as a rule one for each second that has passed. It does not keep the limit, which may change at any
// time. It is not for concurrent use; asking changes it too.
//
// The window's own clock never runs backwards. Where the caller's does, by up to 60 seconds, it stands still until it
// is caught up with (callers that read the clock before they queued for the lock are a case of this); by more, the
// caller's clock has been set, and the window goes on from where it was, everything as old as before. Either way
// nothing leaves early, and nothing stays longer than 121 seconds. A clock that is set forwards cannot be told from
// waiting.
type Window struct {
	newest Second       // of its own clock; at least 0
	shift  Second       // its own clock less the caller's
	total  uint32       // the sum of counts
	counts [span]uint32 // by second of its own clock, modulo span: newest-reach to newest
}

// Used is what counts at that time. It is over the limit where more was charged than was reserved.
func (w *Window) Used(now Second) int {
	w.advance(now)
	return int(w.total)
}

// Room is how much fits at that time; at least 0.
func (w *Window) Remaining(now Second, limit int) int {
	return max(0, bounded(limit)-w.Used(now))
}

// Take counts n if it fits, and otherwise nothing, and reports whether it did. None (n of 0 or less) always fits.
func (w *Window) Take(now Second, n, limit int) bool {
	if n > w.Remaining(now, limit) {
		return false
	}
	w.add(n)
	return true
}

// Charge counts n whether it fits or not: what is known only once it has been used. It is paid back by waiting.
func (w *Window) Charge(now Second, n int) {
	w.advance(now)
	w.add(n)
}

// Wait is for how many whole seconds enough must leave before n fits: 0 if it fits now, and at least 1 otherwise,
// unless n is over the limit and never fits (ok is false).
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

// Reset is when the oldest second that counts leaves, so that there begins to be more room; now if nothing counts.
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

// advance brings the window to that time: its own clock moves on, or stands.
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

// oldest is the first second of its own clock that still counts.
func (w *Window) oldest() Second { return max(0, w.newest-reach) }

// leaves is when, by the caller's clock, a second of its own clock stops counting.
func (w *Window) leaves(s Second) Second { return s + span - w.shift }

// add counts n in the newest second.
func (w *Window) add(n int) {
	n = max(0, min(n, maxTotal-int(w.total)))
	w.counts[w.newest%span] += uint32(n)
	w.total += uint32(n)
}

// giveBack takes n off the second, of its own clock, in which it was counted, if that still counts.
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
